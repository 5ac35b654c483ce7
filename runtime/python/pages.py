"""pages.py: writes API.md beside this file from the docstrings, for `make python-pages`; a test compares the page."""
import inspect
import sys
from pathlib import Path

import fcpc
import fcpc.torch

PAGE = Path(__file__).parent / "API.md"
# For whom what is: people who design masks, who train, and who look at what a plan costs.
CHAPTERS = [("Programs and masks", [fcpc.program, fcpc.parse, fcpc.Program, fcpc.trace, fcpc.Field]),
            ("Plans", [fcpc.Plan, fcpc.Simulation, fcpc.load]),
            ("Training", [fcpc.detect, fcpc.Cluster, fcpc.torch.Attention, fcpc.Session]),
            ("Errors", [fcpc.Error])]


def _block(name, thing):
    """The heading, the signature and the docstring of a function or class."""
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        signature = ""
    if isinstance(thing, property):
        signature = ""
    signature = signature.replace("(self, ", "(").replace("(self)", "()")
    return f"`{name}{signature}`\n\n```text\n{inspect.getdoc(thing)}\n```\n"


def page():
    """The text of API.md."""
    lines = ["# The Python package: all functions", "",
             "[README.md](README.md) says how they go together. This page is made from the docstrings of the package "
             "by `make python-pages`.", ""]
    for title, things in CHAPTERS:
        lines += [f"## {title}", ""]
        for thing in things:
            path = "fcpc.torch." if thing.__module__ == "fcpc.torch" else "fcpc."
            lines.append(f"### {path}{thing.__name__}\n\n{_block(thing.__name__, thing)}")
            for name, member in sorted(vars(thing).items()) if inspect.isclass(thing) else ():
                if not name.startswith("_") and (callable(member) or isinstance(member, property)) and \
                        inspect.getdoc(member):
                    lines.append(_block(f"{thing.__name__}.{name}", member))
    return "\n".join(lines) + "\nLicence: [Apache 2.0](../../LICENSE).\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    PAGE.write_text(page())
