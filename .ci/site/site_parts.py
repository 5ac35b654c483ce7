"""What the site adds to Sphinx: anchors of headings, colours of programs, and two lines in the head of each page."""
import json
import pathlib
import posixpath
import re

from pygments import token
from pygments.lexer import RegexLexer
from pygments.lexers.special import TextLexer

GRAMMAR = pathlib.Path(__file__).parents[2] / "grammar/editors/fcp.tmLanguage.json"


def anchor(text):
    """The anchor of a heading, as GitHub has it: the links of the tree count on that."""
    return re.sub(r"[^a-z0-9_ -]", "", text.lower()).replace(" ", "-")


KINDS = {"comment": token.Comment, "string": token.String, "support.type": token.Name.Attribute,
         "support.function": token.Name.Builtin, "keyword.operator": token.Operator, "keyword": token.Keyword,
         "storage": token.Keyword, "constant.numeric": token.Number, "constant": token.Keyword.Constant,
         "variable": token.Name.Variable}


def rules():
    """The rules of the grammar that editors have, which is made from the compiler's tables of words."""
    for rule in json.loads(GRAMMAR.read_text())["patterns"]:
        kind = next(kind for prefix, kind in KINDS.items() if rule["name"].startswith(prefix))
        pattern = rule.get("match", r'"(?:\\.|[^"\\\n])*(?:"|$)')  # only strings have no `match`
        yield pattern.replace(r"(?<=\d|\d\s)", r"(?:(?<=\d)|(?<=\d\s))"), kind  # Python's cannot look back two ways
    yield from [(r"\w+", token.Name), (r"\s+", token.Whitespace), (r".", token.Text)]


class FcpLexer(RegexLexer):
    """Colours programs."""

    name, aliases = "fcp", ["fcp"]
    flags = re.MULTILINE
    tokens = {"root": list(rules())}


def head(app, pagename, templatename, context, doctree):
    """Nothing is loaded from elsewhere, and browsers are told to refuse it. And where the plain page is."""
    lines = ["<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'self' 'unsafe-inline' data:\">"]
    if doctree is not None:
        lines.append(f'<link rel="alternate" type="text/markdown" href="{posixpath.basename(pagename)}.md">')
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def setup(app):
    app.add_lexer("fcp", FcpLexer)
    app.add_lexer("output", TextLexer)
    app.connect("html-page-context", head)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
