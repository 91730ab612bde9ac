"""The page with the board: one file, with its data, script and style inside.

From a disk, a browser fetches nothing, and under a strict policy loads no script from another file. So the rows are a
block of JSON in the page, which no browser runs, and the Content-Security-Policy names the one script by its hash. The
script writes text as text; nothing of a run becomes markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flagperf import version
from flagperf.messages import Lang, catalogue, meaning, site
from flagperf.text import safe_json
from flagperf_publish.render.html import LANGUAGE, style
from flagperf_publish.render.html_cells import escape
from flagperf_publish.site.board import PUBLISHED, CaseRows, Column, Figure
from flagperf_publish.site.site_folder import RUNS

TEXTS = ("site.", "compare.", "web.status_", "label.grade_", "label.compare_")
"""Beginnings of the codes that the script needs."""
MAX_LINKS = 50
"""Of a case, without scripts."""


def index_page(cases: Sequence[CaseRows], title: str, lang: Lang) -> str:
    script, css = _source("compare.js", "rows.js", "board.js"), style() + _source("board.css")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(css)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    shown = title or site("title", lang)
    return (
        f'<!doctype html>\n<html lang="{LANGUAGE[lang]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(shown)}</title>\n<style>{css}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(shown)}</h1><p>{escape(_summary(cases, lang))}</p></header>\n"
        f'<div id="board"></div>\n{_without_script(cases, lang)}\n{_grades(lang)}\n</main>\n'
        f'<script type="application/json" id="data">{_data(cases, lang)}</script>\n<script>{script}</script>\n'
        "</body>\n</html>\n"
    )


def _source(*names: str) -> str:
    return "".join((Path(__file__).parent / name).read_text() for name in names)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(cases: Sequence[CaseRows], lang: Lang) -> str:
    """JSON that cannot end the element it is in."""
    texts = {code: text for code, text in catalogue(lang).items() if code.startswith(TEXTS)}
    content = {"cases": cases, "texts": texts, "codes": {code: meaning(code, lang) for code in sorted(_codes(cases))}}
    return safe_json(msgspec.json.encode(content).decode()).replace("<", "\\u003c").replace("&", "\\u0026")


def _codes(cases: Sequence[CaseRows]) -> set[str]:
    """Of marks and reasons."""
    found = [each for case in cases for column in case.figures.values() for each in column.of]
    figures = [each for each in found if isinstance(each, Figure)]
    return {code for each in figures for code in [*each.marks.split(), each.reason] if code}


def _summary(cases: Sequence[CaseRows], lang: Lang) -> str:
    statuses = [each for case in cases for each in _values(case.plain["status"], case.size)]
    num_published = statuses.count(PUBLISHED)
    days = [str(day)[:10] for case in cases for day in case.plain["created"].of if day]
    return site(
        "summary",
        lang,
        runs=f"{len(statuses) - num_published:,}",
        cases=len(cases),
        published=f"{num_published:,}",
        day=max(days, default="/"),
        version=version(),
    )


def _values(column: Column, size: int) -> list[object]:
    return [column.of[at] for at in column.at or [0] * size]


def _grades(lang: Lang) -> str:
    """The same words as in docs/leaderboard.md."""
    grades = "".join(
        f"<dt>{escape(catalogue(lang)[f'label.grade_{grade}'])}</dt><dd>{escape(site(f'means_{grade}', lang))}</dd>"
        for grade in ("recomputable", "logged", "typed_by_hand")
    )
    title, about = escape(site("about", lang)), escape(site("no_ranking", lang))
    return (
        f'<section><details class="fold"><summary>{title}</summary><div class="inside"><dl class="facts">{grades}</dl>'
        f'<p class="foot">{about}</p></div></details></section>'
    )


def _without_script(cases: Sequence[CaseRows], lang: Lang) -> str:
    lists = "".join(_links(case, lang) for case in cases)
    return f'<noscript><p class="caution">{escape(site("no_script", lang))}</p>{lists}</noscript>'


def _links(case: CaseRows, lang: Lang) -> str:
    """To the newest pages of a case."""
    names = [str(name) for name in _values(case.plain["name"], case.size)]
    pages = sorted((name for name in names if not name.startswith(f"{PUBLISHED}:")), reverse=True)
    items = "".join(f'<li><a href="{html.escape(link)}">{escape(name)}</a></li>' for name, link in _pages(pages))
    more = (
        f"<li>{escape(site('more_pages', lang, count=len(pages) - MAX_LINKS))}</li>" if len(pages) > MAX_LINKS else ""
    )
    return f"<h2>{escape(case.title)}</h2><ul class=list>{items}{more}</ul>"


def _pages(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((name, f"{RUNS}/{name}.html") for name in names[:MAX_LINKS])
