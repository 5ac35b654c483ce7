"""protocol.py FCPC: tests `fcpc lsp` as a process: how it ends, and that planning never keeps an answer waiting.
Prints "ok NAME" or "FAILED NAME: why"."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

fcpc = sys.argv[1]
URI = "file:///none/a.fcp"
# auto on many ranks takes seconds
SLOW = "batch { lengths = [65536 x 64] }\ncluster { nodes = 32; gpus = 8 }\nplan { mask = causal; strategy = auto(effort = 3) }\n"
GOOD = "batch { lengths = [4096] }\nplan { mask = causal }\n"


def frame(message):
    body = json.dumps(dict(message, jsonrpc="2.0")).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


class Server:
    def __init__(self):
        self.process = subprocess.Popen([fcpc, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        self.asked = 0

    def send(self, message):
        self.process.stdin.write(frame(message))
        self.process.stdin.flush()

    def read(self):
        size = None
        while (line := self.process.stdout.readline()) not in (b"\r\n", b""):
            size = int(line.split(b":")[1])
        return json.loads(self.process.stdout.read(size)) if size else None

    def ask(self, method, **params):
        """The answer, and what came before it."""
        self.asked += 1
        self.send({"id": self.asked, "method": method, "params": params})
        before = []
        while (message := self.read()) and message.get("id") != self.asked:
            before.append(message)
        return message, before

    def tell(self, method, **params):
        self.send({"method": method, "params": params})

    def open(self, text):
        self.ask("initialize", capabilities={})
        self.tell("textDocument/didOpen", textDocument={"uri": URI, "languageId": "fcp", "version": 1, "text": text})

    def end(self):
        """The exit status, and what is on stderr."""
        _, words = self.process.communicate(timeout=60)
        return self.process.returncode, words.decode()


def holds(name, good, instead):
    print(f"ok {name}" if good else f"FAILED {name}: {str(instead)[:300]}")


s = Server()
s.open(GOOD)
holds("two steps of a check", [s.read()["params"]["version"] for _ in range(2)] == [1, 1], "")
s.ask("shutdown")
s.tell("exit")
status = s.end()
holds("status 0 after shutdown and exit", status == (0, ""), status)

s = Server()
s.open(GOOD)
s.tell("exit")
status = s.end()
holds("status 1 after exit alone", status[0] == 1 and "without saying shutdown" in status[1], status)

s = Server()
s.open(GOOD)
status = s.end()
holds("status 1 when the editor dies", status[0] == 1, status)

s = Server()
s.process.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
s.process.stdin.flush()
refusal = s.read()
status = s.end()
holds("what is no protocol is refused", refusal["error"]["code"] == -32700, refusal)
holds("and ends with words", status[0] == 1 and "without Content-Length" in status[1], status)

# Planning takes seconds; meanwhile answers come, and a change ends it.
s = Server()
s.open(SLOW)
s.read()
begun = time.monotonic()
answer, before = s.ask("textDocument/hover", textDocument={"uri": URI}, position={"line": 2, "character": 15})
waited = time.monotonic() - begun
holds("an answer while it plans", "mask causal" in str(answer) and not before and waited < 1, (waited, before))
s.tell("textDocument/didChange", textDocument={"uri": URI, "version": 2}, contentChanges=[{"text": GOOD}])
begun = time.monotonic()
messages = [s.read(), s.read()]
waited = time.monotonic() - begun
holds("a change ends planning", all(m["params"]["version"] == 2 for m in messages) and waited < 2, (waited, messages))
s.tell("textDocument/didChange", textDocument={"uri": URI, "version": 3}, contentChanges=[{"text": SLOW}])
s.read()
begun = time.monotonic()
s.ask("shutdown")
s.tell("exit")
status = s.end()
waited = time.monotonic() - begun
holds("so does exit", status[0] == 0 and waited < 2, (waited, status))

# Two documents: each has its own version and diagnostics.
s = Server()
s.open(GOOD)
other = URI.replace("a.fcp", "b.fcp")
s.tell("textDocument/didOpen", textDocument={"uri": other, "version": 7, "text": "plan { mask = none_such }"})
seen = {}
while len(seen) < 2 or not seen[other]:
    m = s.read()
    seen[m["params"]["uri"]] = m["params"]["diagnostics"]
holds("two documents", seen[URI] == [] and seen[other][0]["code"] == "E200", seen)
s.process.stdin.close()
s.process.wait(60)

# Paths are relative to the document, and files are read again when it is saved.
with tempfile.TemporaryDirectory() as folder:
    saved = pathlib.Path(folder, "a b.fcp").as_uri()
    s = Server()
    s.ask("initialize", capabilities={})
    s.tell("textDocument/didOpen", textDocument={"uri": saved, "version": 1, "text": GOOD.replace("[4096]", 'file("a.lengths")')})
    first = s.read()["params"]["diagnostics"]
    pathlib.Path(folder, "a.lengths").write_text("100\n200\n")
    s.tell("textDocument/didSave", textDocument={"uri": saved})
    later = [s.read()["params"]["diagnostics"] for _ in range(2)]
    holds("a file that is missing", first[0]["code"] == "E010" and first[0]["range"]["start"]["line"] == 0, first)
    holds("and is there when the text is saved", later == [[], []], later)
    s.process.stdin.close()
    s.process.wait(60)
