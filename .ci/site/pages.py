"""Gathers the pages of the site in a folder, for Sphinx to build: pages.py FOLDER FCPC [--play].

No page is written for the site. Every .md file of the tree is copied to the same path (README.md as index.md, the page
of its folder), and only its links change:

    a link to a page     leads to its copy
    a picture            is copied to the same path
    any other file       is copied into a page that shows it, files/PATH.md

Three things are made, because the tree has no page of them: the gallery (each example and each mask of the prelude, its
picture and the command that draws it), llms.txt and llms-full.txt. README.md is the front page. With --play its first
words are a link to the playground. FCPC is the program that draws. The same tree gives the same bytes.
"""
import fnmatch
import html
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The contents: a caption, and which pages stand under it, in this order. A page stands where it is named first. What
# nothing names stands under the last caption, so that no page is forgotten.
CONTENTS = [
    ("Use it", ["index.md", "gallery.md", "grammar/COOKBOOK.md", "grammar/LANGUAGE.md", "compiler/OUTPUT.md",
                "compiler/cli/*.md", "runtime/ERRORS.md", "tests/SUPPORT.md"]),
    ("In Python", ["runtime/python/index.md", "runtime/python/FRAMEWORKS.md", "runtime/python/API.md"]),
    ("In C", ["runtime/index.md", "files/compiler/fcpc.h.md", "files/runtime/fcp.h.md", "runtime/plan/FORMAT.md",
              "runtime/cuda/index.md", "runtime/judge/*.md"]),
    ("How it plans", ["compiler/index.md", "compiler/*.md"]),
    ("Kernels", ["codegen/index.md", "codegen/*.md"]),
    ("Is it right? Is it fast?", ["tests/index.md", "tests/*.md", "fuzz/*.md", "examples/*.md"]),
    ("The project", ["CHANGELOG.md", "*"]),
]
# Pages that llms-full.txt has: what one needs to write programs. All others are measurements, or of the inside.
FULL = ["index.md", "grammar/COOKBOOK.md", "grammar/LANGUAGE.md", "compiler/OUTPUT.md", "runtime/ERRORS.md",
        "tests/SUPPORT.md", "runtime/python/index.md", "runtime/python/FRAMEWORKS.md"]
# What highlights a file, by the end of its name.
LANGUAGES = {"c": "c", "h": "c", "def": "c", "py": "python", "sh": "sh", "fcp": "fcp", "css": "css", "js": "js"}


def staged(path):
    """Where the copy of a page stands."""
    return re.sub(r"(^|/)README\.md$", r"\1index.md", path)


def sources():
    """The pages of the tree, by their paths."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        inner = os.path.relpath(folder, ROOT)
        skipped = (".", "build") if inner == "." else (".",)
        folders[:] = sorted(f for f in folders if not f.startswith(skipped))
        found += [os.path.normpath(os.path.join(inner, f)) for f in sorted(files) if f.endswith(".md")]
    return found


class Site:
    def __init__(self, folder, fcpc):
        self.folder, self.fcpc = pathlib.Path(folder), fcpc
        self.shown = set()  # files that have a page of their own
        self.texts = {}     # page -> its text

    def write(self, page, text):
        self.texts[page] = text
        target = self.folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def show(self, path):
        """The page that shows a file."""
        page = f"files/{path}.md"
        if path not in self.shown:
            self.shown.add(path)
            text = (ROOT / path).read_text()
            text += "" if text.endswith("\n") else "\n"
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=2))
            language = LANGUAGES.get(path.rpartition(".")[2], "text")
            self.write(page, f"# {path}\n\n{fence}{language}\n{text}{fence}\n")
        return page

    def link(self, page, target):
        """A link of a page of the tree, as its copy must have it."""
        if re.match(r"[a-z]+:|#", target):
            return target
        path, hash_, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if path.endswith(".md"):
            there = staged(path)
        elif path.endswith((".svg", ".png")):
            there = path
            (self.folder / there).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / there).write_bytes((ROOT / path).read_bytes())
        else:
            there = self.show(path)
        return os.path.relpath(there, os.path.dirname(page) or ".") + hash_ + anchor

    def copy(self, page):
        fenced = False
        lines = []
        for line in (ROOT / page).read_text().splitlines():
            if re.match(r" *```", line):
                fenced = not fenced
            elif not fenced:
                line = re.sub(r"\]\(([^) ]+)\)", lambda found: f"]({self.link(page, found[1])})", line)
            lines.append(line)
        self.write(staged(page), "\n".join(lines) + "\n")

    def draw(self, command, picture):
        """Runs a command that draws a picture of the gallery."""
        target = self.folder / picture
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.fcpc, "-q", *command, "--svg", target], cwd=ROOT, check=True, capture_output=True)

    def gallery(self, play):
        """Pictures stand in HTML, because Markdown has no rows that fold on a narrow screen."""
        def entry(name, picture, words, command, program):
            command = " ".join(shlex.quote(word) for word in ["build/fcpc", *command, "--svg", f"{name}.svg"])
            words += f' <a href="play/index.html#e={program}">Try it.</a>' if play else ""
            return (f'<figure id="{name}"><a href="{picture}"><img src="{picture}" alt="{name}" loading="lazy"></a>\n'
                    f"<figcaption><b>{name}</b>{words}<pre>{html.escape(command, False)}</pre></figcaption></figure>\n")

        text = ("# Gallery\n\nEvery mask of the prelude and every example, with its picture and the command that\n"
                "draws it. Rows are queries, columns are keys; a dark cell has many allowed pairs. Click at a\n"
                "picture to see all of it.\n")
        text += "\n## Masks of the prelude\n\nEach picture is of 4096 tokens.\n\n<div class=\"gallery masks\">\n"
        for call in subprocess.check_output([ROOT / "grammar/pictures/draw.sh", "--list"], text=True).splitlines():
            name = call.partition("(")[0]
            picture = self.link("gallery.md", f"grammar/pictures/{name}.svg")
            program = f"examples/masks/{name}.fcp"
            command = ["show", program]
            if not (ROOT / program).exists():
                command = ["show", "examples/my_mask.fcp", "-D", "batch.lengths=[4096]", "-D", f"plan.mask={call}"]
                subprocess.run([self.fcpc, "-q", *command], cwd=ROOT, check=True, capture_output=True)
            text += entry(name, picture, f"<code>{html.escape(call[len(name):], False)}</code>", command,
                          f"prelude/{name}")
        text += "</div>\n"
        for folder, title in (("examples", "Examples"), ("examples/masks", "Examples of masks"),
                              ("examples/scores", "Examples of scores"), ("examples/seeds", "What papers describe")):
            text += f'\n## {title}\n\n<div class="gallery">\n'
            for source in sorted((ROOT / folder).glob("*.fcp")):
                path = f"{folder}/{source.name}"
                self.draw(["show", path], f"{path}.svg")
                comment = re.match(r"(#.*\n)*", source.read_text())[0]
                words = " ".join(line.lstrip("# ") for line in comment.splitlines()).strip()
                words = html.escape(re.sub(r"^[a-z0-9_]+\.fcp: *", "", words), False)
                program = self.show(path).replace(".md", ".html")
                text += entry(f"{folder.rpartition('/')[2]}-{source.stem}".removeprefix("examples-"), f"{path}.svg",
                              f' <a href="{program}">{path}</a>: {words}', ["show", path], path)
            text += "</div>\n"
        self.write("gallery.md", text)

    def front(self, play):
        """README.md as the front page: a link to the playground above it, and the contents, which only menus show."""
        pages = sorted(p for p in self.texts if not p.startswith("files/"))
        pages += ["files/compiler/fcpc.h.md", "files/runtime/fcp.h.md"]
        text, summary, listed = self.texts["index.md"], [], {"index.md"}
        if play:
            title, _, rest = text.partition("\n")
            link = '<p class="play"><a href="play/index.html">Try it here: the compiler in your browser</a></p>'
            text = f"{title}\n\n{link}\n{rest}"
        for caption, patterns in CONTENTS:
            under = []
            for pattern in patterns:
                under += [p for p in pages if p not in under and (p not in listed or p == pattern == "index.md")
                          and fnmatch.fnmatch(p, pattern)]
            listed.update(under)
            inner = [p for p in under if p != "index.md"]
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n"
            text += "".join(p.removesuffix(".md") + "\n" for p in inner) + "```\n"
            summary.append((caption, under))
        self.write("index.md", text)
        for page in self.texts:  # a file that is shown belongs to the page that links to it
            if page not in listed:
                self.write(page, "---\norphan: true\n---\n" + self.texts[page])
        return summary

    @staticmethod
    def about(text):
        """The first sentence of a page: of its first paragraph that begins with a word."""
        found = re.search(r"^((?!```)[A-Z*`][^\n]*(?:\n[^\n]+)*)", text, flags=re.M)
        if not found:
            return ""
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(found[1].split())).replace("*", "")
        return ": " + re.split(r"(?<=[.:])\s", words)[0].rstrip(".:") + "."

    def llms(self, summary):
        """llms.txt: what there is, in one page of plain text. llms-full.txt: what one needs to write programs."""
        plain = {page: re.sub(r"\n```\{toctree\}.*?\n```\n", "", text, flags=re.S) for page, text in self.texts.items()}
        text = ("# fcpc\n\n> A compiler for context-parallel attention: it turns who attends to whom into a plan for\n"
                "> many GPUs, proves the plan, and runs it.\n\nEvery page is also there as Markdown: .md for .html.\n")
        for caption, under in summary:
            text += f"\n## {caption}\n\n"
            for page in under:
                title = re.search(r"^# (.*)", plain[page], flags=re.M)[1]
                text += f"- [{title}]({page}){self.about(plain[page])}\n"
        (self.folder / "llms.txt").write_text(text)
        (self.folder / "llms-full.txt").write_text("\n\n".join(plain[page] for page in FULL if page in plain))


def main(folder, fcpc, play):
    site = Site(folder, fcpc)
    for page in sources():
        site.copy(page)
    for header in ("compiler/fcpc.h", "runtime/fcp.h"):
        site.show(header)
    site.gallery(play)
    site.llms(site.front(play))


if __name__ == "__main__":
    main(sys.argv[1], os.path.abspath(sys.argv[2]), "--play" in sys.argv)
