"""How Sphinx builds the site of what pages.py has gathered. `make site` runs both, then check.py."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # of site_parts.py

project = "fcpc"
author = "the authors of fcpc"
release = (HERE.parents[1] / "VERSION").read_text().strip()
extensions = ["myst_parser", "site_parts"]
myst_heading_anchors = 6
myst_heading_slug_func = "site_parts.anchor"
highlight_language = "text"
html_theme = "furo"
html_title = f"fcpc {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_use_index = html_copy_source = html_show_copyright = html_show_sourcelink = False
