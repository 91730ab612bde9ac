"""How Sphinx makes the pages: Markdown as GitHub reads it, nothing from the network, search in the pages' language."""

from __future__ import annotations

import logging
from pathlib import Path

import jieba
from sphinx.application import Sphinx
from sphinx.config import Config

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


def setup(app: Sphinx) -> None:
    app.connect("config-inited", _add_words)


def _add_words(_: Sphinx, config: Config) -> None:
    """Those of the search. What pages themselves say in a language is in `locales`, which sources.py takes along."""
    words = f"words_{config.language}.js"
    if (HERE / "static" / words).is_file():
        config.html_js_files.append(words)
