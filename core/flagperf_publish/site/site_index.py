"""The page with the board: one file, with its data, script and style inside.

From a disk, a browser fetches nothing, and under a strict policy loads no script from another file. So the rows are a
block of JSON in the page, which no browser runs, and the Content-Security-Policy names the one script by its hash. The
script writes text as text; nothing of a run becomes markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf import version
from flagperf.messages import Lang, catalogue, meaning, site
from flagperf.text import safe_json
from flagperf_publish.render.html import html_page, style
from flagperf_publish.render.html_cells import escape
from flagperf_publish.site.board import PUBLISHED, BoardFigure, CaseRows, CodedColumn
from flagperf_publish.site.site_folder import RUNS

TEXTS = ("site.", "compare.", "web.status_", "label.grade_", "label.compare_")
"""Beginnings of the codes that the script needs."""
MAX_LINKS = 50
"""Of a case, without scripts."""


def index_page(cases: Sequence[CaseRows], title: str, lang: Lang) -> str:
    script, css = _source("compare.js", "rows.js", "board.js"), style() + _source("board.css")
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(css)}'"
    shown = title or site("title", lang)
    statuses = [each for case in cases for each in _values(case.plain["status"], case.size)]
    num_published = statuses.count(PUBLISHED)
    days = [str(day)[:10] for case in cases for day in case.plain["created"].of if day]
    summary = site(
        "summary",
        lang,
        runs=f"{len(statuses) - num_published:,}",
        cases=len(cases),
        published=f"{num_published:,}",
        day=max(days, default="/"),
        version=version(),
    )
    texts = {code: text for code, text in catalogue(lang).items() if code.startswith(TEXTS)}
    in_columns = [each for case in cases for column in case.figures.values() for each in column.of]
    figures = [each for each in in_columns if isinstance(each, BoardFigure)]
    codes = {code for each in figures for code in [*each.marks.split(), each.reason] if code}
    content = {"cases": cases, "texts": texts, "codes": {code: meaning(code, lang) for code in sorted(codes)}}
    data = safe_json(msgspec.json.encode(content).decode())  # JSON that cannot end the element it is in:
    data = data.replace("<", "\\u003c").replace("&", "\\u0026")
    grades = "".join(  # in the same words as docs/leaderboard.md
        f"<dt>{escape(catalogue(lang)[f'label.grade_{grade}'])}</dt><dd>{escape(site(f'means_{grade}', lang))}</dd>"
        for grade in ("recomputable", "logged", "typed_by_hand")
    )
    return html_page(
        lang,
        f"{policy}; base-uri 'none'; form-action 'none'",
        shown,
        css,
        f"<main>\n<header><h1>{escape(shown)}</h1><p>{escape(summary)}</p></header>\n"
        f'<div id="board"></div>\n<noscript><p class="caution">{escape(site("no_script", lang))}</p>'
        f"{''.join(_links(case, lang) for case in cases)}</noscript>\n"
        f'<section><details class="fold"><summary>{escape(site("about", lang))}</summary><div class="inside">'
        f'<dl class="facts">{grades}</dl><p class="foot">{escape(site("no_ranking", lang))}</p></div></details>'
        f'</section>\n</main>\n<script type="application/json" id="data">{data}</script>\n<script>{script}</script>',
    )


def _source(*names: str) -> str:
    return "".join((Path(__file__).parent / name).read_text() for name in names)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _values(column: CodedColumn, size: int) -> list[object]:
    return [column.of[at] for at in column.at or [0] * size]


def _links(case: CaseRows, lang: Lang) -> str:
    """Link the newest pages of a case."""
    names = [str(name) for name in _values(case.plain["name"], case.size)]
    pages = sorted((name for name in names if not name.startswith(f"{PUBLISHED}:")), reverse=True)
    items = [f'<li><a href="{RUNS}/{html.escape(name)}.html">{escape(name)}</a></li>' for name in pages[:MAX_LINKS]]
    if len(pages) > MAX_LINKS:
        items.append(f"<li>{escape(site('more_pages', lang, count=len(pages) - MAX_LINKS))}</li>")
    return f"<h2>{escape(case.title)}</h2><ul class=list>{''.join(items)}</ul>"
