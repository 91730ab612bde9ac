"""Render a document as one HTML file that needs nothing else: no network, no script, style and drawings inside.

Text of runs, tools and cases is shown, never interpreted: it is escaped wherever it is written, and the page's own
Content-Security-Policy allows neither scripts nor requests.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from flagperf.messages import Lang, explain, meaning, web
from flagperf.report import document as doc
from flagperf.text import visible
from flagperf_publish.render.figures_html import Figure, figure_html
from flagperf_publish.render.html_cells import (
    NO_VALUE,
    Remarks,
    cell_html,
    column_class,
    escape,
    link_html,
    links_html,
    may_break,
    not_available,
    short_path,
    text_of,
)

POLICY = (
    "default-src 'none'; script-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
WHOLE_VALUE = 22
"""Shorter values are never wrapped."""
MANY_COLUMNS = 10
"""A table of more is printed in smaller type."""
LANGUAGE = {"en": "en", "zh": "zh-CN"}


def to_html(document: doc.Document) -> str:
    page = _Page(document)
    body, up = page.body(), document.up
    if up:
        body = f'<p class="up"><a href="{escape(up.url)}">← {escape(up.text)}</a></p>\n{body}'
    return html_page(document.lang, POLICY, page.title, f"\n{style()}", f"<main>\n{body}\n</main>")


def html_page(lang: Lang, policy: str, title: str, css: str, body: str) -> str:
    """Return a page. Policy, style and body are markup, the title is text."""
    return (
        f'<!doctype html>\n<html lang="{LANGUAGE[lang]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{css}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


@functools.cache
def style() -> str:
    return (Path(__file__).parent / "page.css").read_text()


class _Page:
    def __init__(self, document: doc.Document) -> None:
        self.document = document
        self.remarks = Remarks(document.lang)

    @property
    def title(self) -> str:
        named = (block for block in self.document.blocks if isinstance(block, doc.Heading))
        return self.document.title or next((heading.text for heading in named), "flagperf")

    def body(self) -> str:
        """Begin a section at each main heading. What comes before the first is the head of the page."""
        parts: list[list[doc.Block]] = []
        for block in self.document.blocks:
            if not parts or _begins_section(block):
                parts.append([])
            parts[-1].append(block)
        written, links = [], []
        for number, blocks in enumerate(parts):
            inside = "\n".join(self.blocks(blocks))
            heading = blocks[0]
            if isinstance(heading, doc.Heading) and _begins_section(heading):
                links.append(f'<a href="#part-{number}">{escape(heading.text)}</a>')
                written.append(f'<section id="part-{number}">\n{inside}\n</section>')
            else:
                written.append(f"<header>{inside}</header>")
        if len(links) > 1:
            contents = f'<nav aria-label="{escape(web("contents", self.document.lang))}">{"".join(links)}</nav>'
            written.insert(len(parts) - len(links), contents)
        if self.remarks.texts:
            remarks = (
                f'<li id="remark-{number}">{escape(text)}</li>' for number, text in enumerate(self.remarks.texts, 1)
            )
            title = escape(web("remarks", self.document.lang))
            written.append(f'<section><h2>{title}</h2><ol class="refs">{"".join(remarks)}</ol></section>')
        return "\n".join(written)

    # --- blocks ---

    def blocks(self, blocks: Sequence[doc.Block]) -> Iterator[str]:
        """Write blocks. Neighbours of one kind share a grid: figures, headlines, facts."""

        def grid(block: doc.Block) -> str:
            if isinstance(block, Figure):
                return "charts"
            if isinstance(block, doc.Headline):
                return "headlines"
            return "facts" if isinstance(block, doc.Facts) else ""

        for kind, group in groupby(blocks, key=grid):
            of_kind = list(group)
            if kind == "charts":
                yield f'<div class="charts">{"".join(map(self.block, of_kind))}</div>'
            elif kind == "headlines":
                yield self._headlines([each for each in of_kind if isinstance(each, doc.Headline)])
            elif kind == "facts":
                yield f'<div class="pair">{"".join(map(self.block, of_kind))}</div>'
            else:
                yield from filter(None, map(self.block, of_kind))

    def block(self, block: doc.Block) -> str:
        match block:
            case doc.Heading(text, level):
                tag = f"h{min(max(level, 1), 4)}"
                return f"<{tag}>{escape(text)}</{tag}>" if text else ""
            case doc.Paragraph(text):
                return f'<p class="foot">{escape(text)}</p>'
            case doc.Facts():
                return self._facts(block)
            case doc.Bullets():
                tag = "ol" if block.numbered else "ul"
                title = f'<div class="title">{escape(block.title)}</div>' if block.title else ""
                items = "".join(f"<li>{cell_html(item, self.remarks)}</li>" for item in block.items)
                return f'<div class="card">{title}<{tag} class="list">{items}</{tag}></div>'
            case doc.Table():
                return self._table(block)
            case doc.Code(text):
                lines = "\n".join(escape(visible(line.replace("\t", "    "))) for line in text.split("\n"))
                return f"<pre>{lines}</pre>"
            case doc.Notes():
                groups = [
                    f"<div>{f'<h3>{escape(group.subject)}</h3>' if group.subject else ''}"
                    f'<ul class="list">{"".join(f"<li>{escape(note)}</li>" for note in group.notes)}</ul></div>'
                    for group in block.groups
                ]
                return f'<div class="groups">{"".join(groups)}</div>'
            case doc.Fold(title, blocks):
                return self._fold(title, "".join(self.blocks(blocks)))
            case doc.Headline():
                return self._headlines([block])
            case doc.Chart() | doc.Histogram() | doc.Shares() | doc.Bars() | doc.Intervals() | doc.HeatMap():
                return figure_html(block)

    def _fold(self, title: str, inside: str) -> str:
        return f'<details class="fold"><summary>{escape(title)}</summary><div class="inside">{inside}</div></details>'

    def _facts(self, block: doc.Facts) -> str:
        rows = []
        for fact in block.facts:
            if isinstance(fact.cell, doc.Empty):  # there is room for the reason
                why = explain(fact.cell.reason, self.remarks.lang, fact.cell.detail)
                value = f'<span class="none">{NO_VALUE} {escape(why)}</span>'
            else:
                value = cell_html(fact.cell, self.remarks)
            note = f' <span class="none">({escape(fact.note)})</span>' if fact.note else ""
            rows.append(f"<dt>{escape(fact.label)}</dt><dd>{value}{note}</dd>")
        title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
        return f'<div class="card">{title}<dl class="facts">{"".join(rows)}</dl></div>'

    # --- tables ---

    def _table(self, block: doc.Table) -> str:
        """Write a table without the columns that say nothing."""
        columns = [[row[index] for row in block.rows] for index in range(len(block.heads))]
        kinds = {
            index: column_class(cells)
            for index, cells in enumerate(columns)
            if not cells or any(isinstance(cell, doc.Empty) or text_of(cell) for cell in cells)
        }
        heads, rows = [], []
        for index, kind in kinds.items():
            head = block.heads[index]
            classes = " ".join(filter(None, ["num" if kind == "num" else "", "star" if head.headline else ""]))
            title = ("*" if head.headline else "") + may_break(escape(head.title))
            heads.append(f'<th class="{classes}">{title}</th>' if classes else f"<th>{title}</th>")
        for row in block.rows:
            cells = []
            for index, kind in kinds.items():
                match row[index]:
                    case doc.Link(text, url):
                        inside = link_html(text, url, short_path(text))
                    case doc.Links(links):
                        inside = links_html(links)
                    case cell:
                        inside = cell_html(cell, self.remarks)
                cells.append(f'<td class="{kind}">{inside}</td>')
            rows.append(f"<tr>{''.join(cells)}</tr>")
        many = ' class="many"' if len(kinds) > MANY_COLUMNS else ""
        head_row, body = f"<thead><tr>{''.join(heads)}</tr></thead>", f"<tbody>{''.join(rows)}</tbody>"
        table = f'<div class="box"><table{many}>{head_row}{body}</table></div>'
        remark = f'<p class="remark">{escape(block.remark)}</p>' if block.remark else ""
        if block.collapsed:
            return self._fold(f"{block.title} ({len(block.rows)})", table + remark)
        title = f'<div class="title">{escape(block.title)}</div>' if block.title else ""
        return f"<div>{title}{table}{remark}</div>"

    # --- the head of the page ---

    def _headlines(self, blocks: Sequence[doc.Headline]) -> str:
        if len(blocks) == 1:
            return self._headline(blocks[0], "h1")
        cards = "".join(self._headline(block, "h2") for block in blocks)
        return f'<h1>{escape(self.title)}</h1><div class="cards">{cards}</div>'

    def _headline(self, block: doc.Headline, tag: str) -> str:
        status = cell_html(block.status, self.remarks) if block.status else ""
        traits = "".join(
            f"<div><dt>{escape(fact.label)}</dt><dd>{cell_html(fact.cell, self.remarks)}</dd></div>"
            for fact in block.facts
        )
        title = f"<{tag}>{escape(block.title)}</{tag}>" if block.title else ""
        parts = [
            f'<div class="head">{title}{status}</div>' if title or status else "",
            f'<dl class="traits">{traits}</dl>' if traits else "",
            f'<p class="reason">{escape(block.reason)}</p>' if block.reason else "",
            *(f'<p class="caution">{escape(caution)}</p>' for caution in block.cautions),
            self._key_figures([each for each in block.figures if each.headline], "key main"),
            self._key_figures([each for each in block.figures if not each.headline], "key"),
        ]
        return f'<div class="card">{"".join(parts)}</div>'

    def _key_figures(self, figures: Sequence[doc.KeyFigure], kind: str) -> str:
        return f'<div class="{kind}">{"".join(map(self._key_figure, figures))}</div>' if figures else ""

    def _key_figure(self, figure: doc.KeyFigure) -> str:
        name = f" <code>{escape(figure.title)}</code>" if figure.title else ""
        what = f'<div class="what">{escape(figure.label)}{name}</div>'
        big = " big" if figure.headline else ""
        note = f'<div class="note">{escape(figure.note)}</div>' if figure.note else ""
        if isinstance(figure.cell, doc.Empty):
            cell = figure.cell
            value = f'<div class="value none{big}">{not_available(self.remarks.lang)}</div>'
            why = f'<span class="mark">{escape(cell.reason)}</span>{self.remarks.of_empty(cell)}'
            return f'<div>{what}{value}{note}<div class="note">{why}</div></div>'
        unit = f' <span class="unit">{escape(figure.cell.unit)}</span>' if figure.cell.unit else ""
        whole = " class=whole" if len(figure.cell.text) <= WHOLE_VALUE else ""
        value = f'<div class="value{big}"><span{whole}>{escape(figure.cell.text)}</span>{unit}</div>'
        lang = self.remarks.lang
        marks = [
            f'<span class="mark" title="{escape(meaning(mark, lang))}">{escape(mark)}</span>'
            f"{self.remarks.reference(mark, explain(mark, lang))}"
            for mark in figure.cell.marks
        ]
        found = f'<div class="note">{" ".join(marks)}</div>' if marks else ""
        return f"<div>{what}{value}{note}{found}</div>"


def _begins_section(block: doc.Block) -> bool:
    return isinstance(block, doc.Heading) and block.level == 2
