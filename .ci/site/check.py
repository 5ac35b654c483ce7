"""Checks the site that was built: check.py FOLDER. Prints what is wrong, and fails if anything is.

    links     each leads to a file of the site, and to an anchor that this file has, or a program of the playground
    loads     no page and no style asks for anything of another place: scripts, styles, pictures, fonts, frames
    pages     each page has its plain .md beside it, and llms.txt names pages that there are
    colours   text on the colours of static/site.css has the contrast 4.5 that WCAG AA asks for
"""
import html.parser
import json
import pathlib
import re
import sys
import urllib.parse

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src",
         "embed": "src", "input": "src", "track": "src", "object": "data", "image": "href", "use": "href"}
LOADING_LINKS = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "manifest", "preconnect", "dns-prefetch"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loads, self.style = set(), [], [], ""
        self.in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.in_style = tag == "style"
        for name in ("id", "name"):
            if given.get(name):
                self.anchors.add(given[name])
        if given.get("style"):
            self.style += given["style"] + "\n"
        if tag in ("a", "area") and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADS.get(tag)):
            self.loads.append(given[LOADS[tag]])
        if given.get("srcset"):
            self.loads += [part.split()[0] for part in given["srcset"].split(",")]
        if tag == "link" and given.get("href"):
            kinds = set((given.get("rel") or "").split())
            (self.loads if kinds & LOADING_LINKS else self.links).append(given["href"])

    def handle_endtag(self, tag):
        self.in_style = False

    def handle_data(self, data):
        if self.in_style:
            self.style += data


def in_style(text):
    """What a style asks for."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.findall(r"url\(\s*[\"']?([^\"')]+)", text) + re.findall(r"@import\s+[\"']([^\"']+)", text)


def luminance(colour):
    colour = "".join(2 * c for c in colour) if len(colour) == 3 else colour
    parts = [int(colour[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def colours(text):
    """The contrast of each rule that states a background and a colour."""
    for rule in re.findall(r"\{([^}]*)\}", text):
        back = re.search(r"background: #([0-9a-f]+)", rule)
        front = re.search(r"(?<![-a-z])color: #([0-9a-f]+)", rule)
        if back and front:
            light, dark = sorted((luminance(back[1]), luminance(front[1])), reverse=True)
            yield (light + 0.05) / (dark + 0.05)


def programs(page):
    """What may stand behind the # of a page of the playground: the programs of its gallery."""
    gallery = page.with_name("gallery.json")
    return {"e=" + program["id"] for program in json.loads(gallery.read_text())["programs"]} if gallery.exists() else set()


def check(folder):
    faults = []
    pages = {p: Page(p.read_text()) for p in sorted(folder.rglob("*.html"))}
    links = loads = 0
    for path, page in pages.items():
        where = path.relative_to(folder)
        own = "play" not in where.parts[:1]
        for target in page.loads + in_style(page.style):
            loads += 1
            if re.match(r"(https?:)?//", target):
                faults.append(f"{where}: loads {target}")
            elif not re.match(r"data:|blob:|#|$", target):
                file = path.parent / urllib.parse.unquote(re.split("[?#]", target)[0])
                if not file.exists():
                    faults.append(f"{where}: loads {target}, which is not there")
        for target in page.links if own else []:
            if re.match(r"[a-z]+:|//", target):
                continue
            links += 1
            name, _, anchor = target.partition("#")
            file = (path.parent / urllib.parse.unquote(name.partition("?")[0])).resolve() if name else path
            anchor = urllib.parse.unquote(anchor)
            if not file.is_file():
                faults.append(f"{where}: the link {target} leads nowhere")
            elif anchor and file.suffix == ".html" and anchor not in pages[file].anchors | programs(file):
                faults.append(f"{where}: {name or where} has no anchor {anchor}")
        if own and where.name != "search.html" and not path.with_suffix(".md").exists():
            faults.append(f"{where}: there is no plain page beside it")
    for style in sorted(folder.rglob("*.css")):
        for target in in_style(style.read_text()):
            loads += 1
            if re.match(r"(https?:)?//", target):
                faults.append(f"{style.relative_to(folder)}: loads {target}")
    named = re.findall(r"\]\(([^)]+)\)", (folder / "llms.txt").read_text())
    faults += [f"llms.txt: there is no {name}" for name in named if not (folder / name).exists()]
    ratios = list(colours((folder / "_static/site.css").read_text()))
    faults += [f"static/site.css: a contrast of {ratio:.2f}" for ratio in ratios if ratio < 4.5]
    if min(len(pages), links, loads, len(named), len(ratios)) == 0:
        faults.append("there are no pages, links, loads, names in llms.txt or colours: nothing was looked at")
    for fault in faults:
        print(f"FAILED: {fault}")
    print(f"site: {len(pages)} pages, {links} links, {loads} loads; {len(faults)} faults")
    return not faults


if __name__ == "__main__":
    sys.exit(not check(pathlib.Path(sys.argv[1]).resolve()))
