"""serve.py: a client of `fcpc serve`, also one that means harm. run.sh calls serve.py FCPC in a folder of its own.

It prints "ok NAME" for what holds, and "FAILED: NAME: WHY" for what does not."""
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time

FCPC = sys.argv[1]
TEXT = """model { heads = 2; head_dim = 16; dtype = fp32 }
cluster { gpus = 2 }
batch { field doc = given }
mask m = causal and doc[q] == doc[k]
plan { mask = m; block = 32 }
"""
GOOD = {"program": TEXT, "lengths": [60, 40], "fields": {"doc": [i // 20 for i in range(100)]}}
WITHOUT = {k: v for k, v in GOOD.items() if k != "program"}
PLAIN = TEXT.replace("batch { field doc = given }\n", "").replace(" and doc[q] == doc[k]", "")
SHAPED = """model { heads = 2; head_dim = 16; dtype = fp32 }
cluster { gpus = 2 }
batch {
    field near = given(over = sequences)
    field bias = given(real)
    field keep = given(over = heads, queries / 32, keys / 32)
}
mask m = q - k < near and keep[h, q / 32, k / 32] == 1
score t = s + bias[k]
plan { mask = m; score = t; block = 32 }
"""


def check(name, holds, why=""):
    print(f"ok {name}" if holds else f"FAILED: {name}: {why}", flush=True)


class Server:
    def __init__(self, path, *options, files=None):
        """files: how many it may open; None: as many as ever."""
        self.path = path
        limit = lambda: files and resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
        self.process = subprocess.Popen([FCPC, "serve", path, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=limit)
        line = self.process.stderr.readline()
        begins, ends = f"fcpc: listening at {path}", " at once: this process may open few files (ulimit -n)\n"
        check("says where it listens", line.startswith(begins) and line.endswith(ends if files else path + "\n"), line)

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(100)
        s.connect(self.path)
        return s

    def ask(self, *lines):
        """The answers to some lines, sent at once over a connection of their own."""
        with self.connect() as s:
            s.sendall(b"".join(x if isinstance(x, bytes) else json.dumps(x).encode() + b"\n" for x in lines))
            s.shutdown(socket.SHUT_WR)
            with s.makefile("rb") as f:
                return [json.loads(x) for x in f]

    def refuses(self, name, line, code, column=None):
        answers = self.ask(line if isinstance(line, bytes) else {**GOOD, **line})
        error = answers[0].get("error", {}) if len(answers) == 1 else {}
        check(name, error.get("code") == code and column in (None, error["column"]) and
              error == answers[0]["diagnostics"][0], answers)

    def end(self):
        said = self.process.communicate(timeout=100)
        return self.process.returncode, *said


def plans(server):
    with open("a.fcp", "w") as f:
        f.write(TEXT)
    with open("plain.fcp", "w") as f:
        f.write(PLAIN)
    subprocess.run([FCPC, "plain.fcp", "-q", "-D", "batch.lengths=[60, 40]", "-o", "want.plan"], check=True)
    server.ask({"program": PLAIN, "lengths": [60, 40], "plan": "text.plan"})
    with open("text.plan", "rb") as a, open("want.plan", "rb") as b:
        check("the plan is the one that compiling writes", a.read() == b.read())
    text, file = server.ask({**GOOD, "id": 7, "plan": "text.plan"},
                            {**WITHOUT, "id": "b", "file": "a.fcp", "define": ["plan.block=64"]})
    verified = subprocess.run([FCPC, "verify", "-q", "text.plan"])
    check("with fields it is right, too", verified.returncode == 0)
    check("answers say whose they are", (text["id"], file["id"]) == (7, "b"), (text, file))
    check("with the summary", text["plan"] == "text.plan" and text["ranks"] == 2 and text["diagnostics"] == [], text)
    check("a setting counts", file["block"] == 64 and file["plan"] is None and file["digest"] != text["digest"], file)
    layers = PLAIN.replace("mask = m", "layers = [m, window(w = 9) x 3]")
    with open("layers.fcp", "w") as f:
        f.write(layers)
    subprocess.run([FCPC, "layers.fcp", "-q", "-D", "batch.lengths=[60, 40]", "-o", "wants.plan"], check=True)
    (both,) = server.ask({"program": layers, "lengths": [60, 40], "plan": "each.plan"})
    for path, want in ("each.plan", "wants.plan"), ("each.2.plan", "wants.2.plan"):
        with open(path, "rb") as a, open(want, "rb") as b:
            check("each mask's plan is the one that compiling writes", a.read() == b.read(), path)
    first, second = both["layers"]
    check("layers are told apart", (first["plan"], second["plan"]) == ("each.plan", "each.2.plan")
          and (first["layers"], second["layers"]) == (1, 3) and first["homes"] == second["homes"]
          and both["compute_max_over_mean_any"] >= both["compute_max_over_mean_layers"] >= 1
          and first["digest"] == both["digest"] != second["digest"], both)
    answers = server.ask({**GOOD, "id": 1}, json.dumps({**GOOD, "id": 2}).encode())
    check("a last line without an end", [a.get("id") for a in answers] == [1, 2] and "digest" in answers[-1], answers)
    check("the socket is its user's alone", os.stat(server.path).st_mode & 0o777 == 0o600)


def errors(server):
    server.refuses("no JSON", b"hello\n", "E110", 1)
    server.refuses("an empty line", b"\n", "E110", 1)
    server.refuses("half an object", b'{"program": "x"\n', "E110", 16)
    server.refuses("half an object, and no end", b'{"program": "x"', "E110", 16)
    server.refuses("two objects", b"{} {}\n", "E110", 4)
    server.refuses("a comma too many", b'{"lengths": [1,]}\n', "E110", 16)
    server.refuses("a number with a point", b'{"lengths": [1.5]}\n', "E110", 15)
    server.refuses("a number out of range", b'{"lengths": [99999999999999999999]}\n', "E110", 33)
    server.refuses("a length below 0", b'{"lengths": [-1]}\n', "E110", 14)
    server.refuses("no lengths", {"lengths": []}, "E110")
    server.refuses("bytes that are no UTF-8", b'{"program": "\xff"}\n', "E110", 14)
    server.refuses("a NUL in a string", b'{"plan": "\\u0000"}\n', "E110", 17)
    server.refuses("half a surrogate", b'{"plan": "\\ud800x"}\n', "E110", 17)
    server.refuses("an escape that is none", b'{"plan": "\\q"}\n', "E110", 12)
    server.refuses("deep nesting", b"[" * 100000 + b"\n", "E110", 1)
    server.refuses("deep nesting in a value", b'{"lengths": ' + b"[" * 100000 + b"\n", "E110", 14)
    server.refuses("an unknown key", b'{"programm": ""}\n', "E205", 2)
    server.refuses("a key twice", b'{"id": 1, "id": 2}\n', "E201", 11)
    server.refuses("a mask that takes too long", {k: v for k, v in ENDLESS.items() if k != "plan"} |
                   {"fields": {}, "max_seconds": 60}, "E405", 15)
    server.refuses("a limit of no seconds", b'{"max_seconds": 0}\n', "E110")
    server.refuses("a limit that is no number", b'{"max_seconds": "60"}\n', "E110")
    check("a limit that is kept", "digest" in server.ask({**GOOD, "max_seconds": 1})[0])
    server.refuses("no program", b'{"lengths": [4]}\n', "E209")
    server.refuses("a program and a file", {"file": "a.fcp"}, "E209")
    server.refuses("a program that does not parse", {"program": "mask m = q >"}, "E110", 13)
    server.refuses("a name that is not there", {"program": TEXT.replace("causal", "casual")}, "E200", 10)
    server.refuses("a setting that is none", {"define": ["plan.blok=4"]}, "E200", 6)
    server.refuses("a field too short", {"fields": {"doc": [1]}}, "E320")
    shaped = {"program": SHAPED, "lengths": [60, 40],
              "fields": {"near": [9, 50], "bias": [i / 8 for i in range(100)], "keep": [1, 0, 1, 1] * 4}}
    answer = server.ask(shaped)[0]
    check("fields of several shapes, whole and real", "error" not in answer, answer)
    server.refuses("reals for a field of whole numbers",
                   {**shaped, "fields": {**shaped["fields"], "near": [9, 50.5]}}, "E320")
    server.refuses("too few values", {**shaped, "fields": {**shaped["fields"], "keep": [1, 0, 1, 1] * 3}}, "E320")
    server.refuses("no number", {**shaped, "fields": {**shaped["fields"], "bias": ["a"]}}, "E110")
    server.refuses("no field", {"fields": {}}, "E320")
    for lengths, queries in ([0], [0]), ([0, 3, 0], [0, 3, 0]), ([7, 0, 2], [0, 5, 2]):
        answer = server.ask({"program": PLAIN, "fields": {}, "lengths": lengths, "queries": queries})[0]
        check(f"sequences without tokens: {lengths}", "digest" in answer and answer["tokens"] == sum(queries))
    server.refuses("no sequences", {"program": PLAIN, "fields": {}, "lengths": []}, "E110")
    server.refuses("queries of other sequences", {"queries": [1]}, "E300")
    server.refuses("a folder that is not there", {"plan": "none/a.plan"}, "E011")
    server.refuses("a device as plan", {"plan": "/dev/null"}, "E011")
    server.refuses("a device as plans", {"program": PLAIN.replace("mask = m", "layers = [m, window(w = 9)]"),
                                         "fields": {}, "plan": "/dev/null"}, "E011")
    os.mkfifo("pipe")
    server.refuses("a pipe as plan", {"plan": "pipe"}, "E011")
    server.refuses("a pipe as program", json.dumps({**WITHOUT, "file": "pipe"}).encode() + b"\n", "E010")
    server.refuses("the program as plan", json.dumps({**WITHOUT, "file": "a.fcp", "plan": "a.fcp"}).encode() + b"\n",
                   "E011")
    with open("a.fcp") as f:
        check("the program is as it was", f.read() == TEXT)


FILES = {"lengths": 'batch { lengths = file("@") }\nplan { mask = causal }',
         "a field": 'batch { lengths = [4]; field x = file("@") }\nplan { mask = causal }',
         "a field that is read": 'batch { lengths = [4]; field x = file("@") }\nplan { mask = document(d = x) }',
         "a table": 'batch { lengths = [4] }\nmodel { table x = file("@") }\nmask m = x[q] == 0\nplan { mask = m }',
         "slices": 'batch { lengths = [4] }\nplan { mask = slices(file("@")) }',
         "sinks": 'batch { lengths = [4] }\nplan { mask = causal; sink = file("@") }'}


def files(server):
    """Whatever a request names is a regular file, or refused at once: a pipe would keep a thread for ever."""
    os.mkdir("folder")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("listener.sock")
    with open("hole", "w") as f:
        f.truncate(9 << 30)
    os.link("hole", "hole.npy")
    for path in "pipe", "/dev/zero", "/dev/tty", "/dev/stdin", "folder", "listener.sock":
        for place, text in FILES.items():
            line = json.dumps({"program": text.replace("@", path)}).encode()
            server.refuses(f"{path} as {place}", line + b"\n", "E010")
        for define in f'batch.lengths=file("{path}")', f'batch.doc=file("{path}")':
            server.refuses(f"{path} by a setting", {"define": [define], "fields": {}}, "E010")
        server.refuses(f"{path} as program", json.dumps({**WITHOUT, "file": path}).encode() + b"\n", "E010")
        server.refuses(f"{path} as plan", {"plan": path}, "E011")
    os.symlink("../pipe", "folder/link.2.plan")
    server.refuses("a pipe as the second plan", {"program": PLAIN.replace("mask = m", "layers = [m, window(w = 9)]"),
                                                 "fields": {}, "plan": "folder/link.plan"}, "E011")
    check("then there is no first one", os.listdir("folder") == ["link.2.plan"], os.listdir("folder"))
    for path in "hole", "hole.npy", "/proc/self/status":
        for place, text in FILES.items():
            answer, = server.ask({"program": text.replace("@", path)})
            code = answer.get("error", {}).get("code")
            check(f"{path} as {place}", code in ("E010", "E300", "E301", "E320", "E321", "E323"), answer)
    listener.close()


def harm(server):
    """Clients that stop in the middle, that do not read, and that send what comes to mind."""
    idle, half = server.connect(), server.connect()
    half.sendall(b'{"program": "')
    deaf = server.connect()
    deaf.setblocking(False)
    try:
        for _ in range(2000):
            deaf.send(b"x\n" * 4096)
    except BlockingIOError:
        pass
    draw = random.Random(1)
    whole = json.dumps(GOOD).encode()
    for _ in range(60):
        line = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            line[draw.randrange(len(line))] = draw.choice(b'{}[]",:\\0e-x\xff\n ')
        for answer in server.ask(bytes(line) + b"\n"):
            if "error" not in answer and "digest" not in answer:
                check("damaged requests", False, answer)
    answer, = server.ask({**GOOD, "id": 1})
    check("others are served as ever", answer.get("id") == 1 and "digest" in answer, answer)
    for s in (idle, half, deaf):
        s.close()
    answer, = server.ask(b"[" * ((64 << 20) + 1))
    check("a line without an end", answer["error"]["code"] == "E211", answer)
    crowd = [server.connect() for _ in range(64)]
    waits = server.connect()
    waits.sendall(whole + b"\n")
    for s in crowd:
        s.close()
    check("who comes when all places are taken waits", b"digest" in waits.makefile("rb").readline())


# Each pair is looked at, of which there are 5 * 10^11: no test waits for its end.
ENDLESS = {"program": PLAIN.replace("causal", "(q * k) % 1009 < 13"), "lengths": [1 << 20], "plan": "endless.plan"}


def keep_busy(server, request=ENDLESS):
    """A client whose request is being planned: the answer to the line before it says that it is next."""
    s = server.connect()
    s.sendall(b"{}\n" + json.dumps(request).encode() + b"\n")
    s.makefile("rb").readline()
    return s


def has_answer(s):
    s.setblocking(False)
    try:
        return s.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return False


def limited():
    """A limit of the server's holds for all requests; a request may have a lower one."""
    server = Server("l.sock", "--max-seconds", "60")
    server.refuses("a mask that takes longer than the server allows", {**ENDLESS, "fields": {}}, "E405")
    server.refuses("also if the request allows it", {**ENDLESS, "fields": {}, "max_seconds": 1000000}, "E405")
    told = server.ask({**ENDLESS, "max_seconds": 7})[0]["error"]["message"]
    check("a lower limit of the request", "the limit is 7 s" in told, told)
    check("what takes no longer is planned", "digest" in server.ask(GOOD)[0])
    os.unlink("l.sock")
    server.end()


def side_by_side():
    """Clients at the same time: each gets its own answers, in its order; and a request without an end holds none up."""
    server = Server("c.sock", "--threads", "3")
    alone = [server.ask({**GOOD, "lengths": [100 - 9 * i, 9 * i]})[0]["digest"] for i in range(1, 9)]
    crowd, wanted = [server.connect() for _ in range(8)], []
    for n, s in enumerate(crowd):
        mine = [(n, i) for i in range(8)]
        wanted.append([(f"{n} {i}", alone[(n + i) % 8]) for n, i in mine])
        s.sendall(b"".join(json.dumps({**GOOD, "id": f"{n} {i}", "lengths": [100 - 9 * x, 9 * x]}).encode() + b"\n"
                           for n, i in mine for x in [(n + i) % 8 + 1]))
        s.shutdown(socket.SHUT_WR)
    got = [[(a["id"], a["digest"]) for a in map(json.loads, s.makefile("rb"))] for s in crowd]
    check("each client gets its own answers in its order", got == wanted, got)
    for s in crowd:
        s.close()
    slow = [keep_busy(server) for _ in range(2)]
    answers = server.ask(*[{**GOOD, "id": i} for i in range(20)])
    check("requests without an end hold nobody up", [a["id"] for a in answers] == list(range(20))
          and all("digest" in a for a in answers) and not any(map(has_answer, slow)), answers)
    for s in slow:
        s.close()
    for _ in range(4):  # as many as there are threads, and more: those who leave must not keep theirs
        keep_busy(server).close()
    check("who leaves leaves no thread busy", "digest" in server.ask(GOOD)[0] and not os.path.exists("endless.plan"))
    if not os.environ.get("SAN"):
        kept = memory_kept(server)
        check("nobody's memory stays", kept < 8 << 10, kept)
    busy = keep_busy(server)
    server.process.send_signal(signal.SIGTERM)
    status, _, err = server.end()
    check("SIGTERM ends it in the middle of a plan", status == 1 and "E013" in err and not os.path.exists("c.sock")
          and busy.recv(1) == b"", (status, err))
    check("and leaves no file", not [x for x in os.listdir(".") if "endless" in x], os.listdir("."))
    for threads in "0", "65", "x":
        done = subprocess.run([FCPC, "serve", "d.sock", "--threads", threads], stderr=subprocess.PIPE, text=True)
        check(f"no pool of {threads} threads", done.returncode == 2 and "E001" in done.stderr, done.stderr)


# What takes long, each in another part of a request: reading JSON, parsing, evaluating, and planning.
LONG = {"numbers": b'{"program": "", "lengths": [' + b"1," * (12 << 20) + b"1]}\n",
        "a text": {"program": PLAIN + "batch { lengths = [" + "1, " * (2 << 20) + "1] }"},
        "drawn lengths": {"program": PLAIN + "batch { lengths = lognormal(median = 1, sigma = 1.0, count = 16M) }"},
        "a field": {"program": TEXT.replace("given", "[1 x 256M]").replace("batch {", "batch { lengths = [256M];")},
        "a plan": {"program": PLAIN, "lengths": [1] * (1 << 20), "plan": "endless.plan"}}


def leaving():
    """Whatever is done for a client, its thread is free again soon after it has left."""
    server = Server("e.sock", "--threads", "1", "--json")
    for name, request in LONG.items():
        s = server.connect()
        s.sendall(b"{}\n" + (request if isinstance(request, bytes) else json.dumps(request).encode() + b"\n"))
        s.makefile("rb").readline()
        time.sleep(0.05)
        s.close()
        began = time.monotonic()
        good = "digest" in server.ask(GOOD)[0]
        check(f"who leaves, having asked for {name}", good and time.monotonic() - began < 15, time.monotonic() - began)
    os.unlink("e.sock")
    status, out, err = server.end()
    # each had an error before, which says that its request is next, and gave that up
    check("all of them were given up", status == 0 and json.loads(out)["errors"] == 2 * len(LONG), (status, out, err))
    check("and wrote no plan", not os.path.exists("endless.plan"))


def few_files():
    """A process that may open few files serves fewer clients, or says that it cannot."""
    def asked(line):
        with server.connect() as s:
            s.sendall(json.dumps(line).encode() + b"\n")
            return json.loads(s.makefile("rb").readline())
    for most in 3, 5, 8, 10:
        done = subprocess.run([FCPC, "serve", "f.sock"], stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
        check(f"no server with {most} files", done.returncode in (1, 127) and
              ("E011" in done.stderr and "ulimit -n" in done.stderr or "shared libraries" in done.stderr), done.stderr)
    for most in 11, 16, 32, 64:
        server = Server("f.sock", files=most)
        crowd = [server.connect() for _ in range(60)]  # more than there is room for
        for s in crowd:
            s.close()
        check(f"with {most} files it plans", "digest" in asked({**GOOD, "plan": "few.plan"}), most)
        server.process.kill()
        server.end()
    # Where no descriptor is left, who wants to come waits, and so does the server.
    server = Server("f.sock")
    server.ask(GOOD)
    pid = server.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), 1 << 10))
    waits = server.connect()
    waits.sendall(json.dumps(GOOD).encode() + b"\n")
    before = processor_time(pid)
    time.sleep(0.7)
    spent = processor_time(pid) - before
    check("it does not spin", spent < 0.1, spent)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (1 << 10, 1 << 10))
    check("and then it serves", b"digest" in waits.makefile("rb").readline())
    server.process.kill()
    server.end()


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def half_requests():
    """Requests that are not whole yet have a limit together, and a failed allocation is its client's alone."""
    half = b'{"program": "' + b"x" * (30 << 20)

    def refused(s):
        s.settimeout(100)
        line = s.makefile("rb").readline()
        return line and json.loads(line)["error"]["code"] == "E012"

    def send_half(server):
        s = server.connect()
        try:
            s.sendall(half)
        except BrokenPipeError:  # it was refused
            pass
        return s
    server = Server("g.sock")
    crowd = [send_half(server) for _ in range(12)]
    check("others are served", "digest" in server.ask(GOOD)[0])
    check("all together have a limit", resident(server) < 500 << 10, resident(server))
    for s in crowd:
        s.setblocking(False)
    given_up = [s for s in crowd if has_answer(s)]
    check("who is beyond it is told", given_up and all(map(refused, given_up)), len(given_up))
    for s in crowd:
        s.close()
    server.process.kill()
    server.end()
    server = Server("g.sock")  # one that has no memory of others
    server.ask(GOOD)
    with open(f"/proc/{server.process.pid}/status") as f:
        size = int(next(line for line in f if line.startswith("VmSize")).split()[1]) << 10
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + (24 << 20), size + (24 << 20)))
    check("no memory for a request", all(refused(send_half(server)) for _ in range(3)))
    check("is no reason to end", "digest" in server.ask(GOOD)[0] and server.process.poll() is None)
    server.process.kill()
    server.end()


def whole_requests():
    """Requests that wait for a thread have a limit, too: who sends a long one beyond it waits, and is served then."""
    server = Server("h.sock", "--threads", "1")
    busy = keep_busy(server)
    line = json.dumps({**GOOD, "program": "#" * (30 << 20)}).encode() + b"\n"
    crowd = [server.connect() for _ in range(14)]
    waiting = []
    for s in crowd:
        s.settimeout(0.3)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[s.send(rest):]
        except TimeoutError:
            waiting.append((s, rest))
    check("who has a long request waits", waiting, len(waiting))
    check("and takes no memory", resident(server) < 640 << 10, resident(server))  # 256 MiB of whole ones, 256 of others
    busy.close()
    for s in crowd:
        s.settimeout(100)
    for s, rest in waiting:
        s.sendall(rest)
    check("until there is room", all(b"E211" in s.makefile("rb").readline() for s in crowd))
    server.process.kill()
    server.end()


def resident(server):
    """KiB."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def memory_kept(server):
    """KiB that the server has more after 200 clients than after 50; each sends 128 KiB, 19 MiB in all."""
    padded = {**GOOD, "program": TEXT + "#" * (1 << 17)}
    for i in range(200):
        if i == 50:
            before = resident(server)
        server.ask(padded)
    return resident(server) - before


def ends():
    server = Server("b.sock", "--json")
    second = subprocess.run([FCPC, "serve", "b.sock"], stderr=subprocess.PIPE, text=True)
    check("one server at a path", second.returncode == 1 and "another server" in second.stderr, second.stderr)
    connected = server.connect()
    server.ask(GOOD)
    os.unlink("b.sock")
    time.sleep(1)
    connected.sendall(json.dumps(GOOD).encode() + b"\n")
    check("connected clients are served to their end", b"digest" in connected.makefile("rb").readline())
    connected.close()
    status, out, err = server.end()
    check("a removed socket ends it", status == 0 and json.loads(out)["requests"] == 2 and "was removed" in err,
          (status, out, err))
    server = Server("b.sock")
    server.process.kill()
    server.end()
    server = Server("b.sock")  # in place of the one that was killed
    server.process.send_signal(signal.SIGINT)
    status, _, err = server.end()
    check("an interruption ends it", status == 1 and "E013" in err and not os.path.exists("b.sock"), (status, err))
    for path, why in (("a.fcp", "there is a file"), ("x" * 200, "too long"), ("none/b.sock", "No such file")):
        done = subprocess.run([FCPC, "serve", path], stderr=subprocess.PIPE, text=True)
        check(f"no socket: {why}", done.returncode == 1 and "E011" in done.stderr and why in done.stderr, done.stderr)


def main():
    server = Server("a.sock")
    try:
        plans(server)
        errors(server)
        files(server)
        harm(server)
    finally:
        server.process.kill()
        server.end()
    limited()
    side_by_side()
    leaving()
    if not os.environ.get("SAN"):  # sanitizers open files and map memory of their own
        few_files()
        half_requests()
        whole_requests()
    ends()


main()
