"""How Sphinx makes the pages: Markdown as GitHub reads it, nothing from the network, search in the pages' language."""

from __future__ import annotations

import logging
from pathlib import Path

import jieba

HERE = Path(__file__).parent

jieba.setLogLevel(logging.WARNING)

project = "flagperf"
release = (HERE.parents[1] / "VERSION").read_text().strip()
extensions = ["myst_parser"]
nitpicky = True

myst_heading_anchors = 6
highlight_language = "none"

html_theme = "furo"
html_title = f"flagperf {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["search_from_files.js"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
