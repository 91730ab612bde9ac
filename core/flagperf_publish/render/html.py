"""Render a document as one HTML file that needs nothing else: no network, no script, style and drawings inside.

Text of runs, tools and cases is shown, never interpreted: it is escaped wherever it is written, and the page's own
Content-Security-Policy allows neither scripts nor requests.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from flagperf.messages import explain, meaning, web
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

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
WHOLE_VALUE = 22
"""Shorter values are never wrapped."""
MANY_COLUMNS = 10
"""A table of more is printed in smaller type."""
LANGUAGE = {"en": "en", "zh": "zh-CN"}


def to_html(document: doc.Document) -> str:
    page = _Page(document)
    body = page.body()
    return (
        f'<!doctype html>\n<html lang="{LANGUAGE[document.lang]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(page.title)}</title>\n<style>\n{style()}</style>\n</head>\n<body>\n<main>\n"
        f"{_up(document)}{body}\n</main>\n</body>\n</html>\n"
    )


@functools.cache
def style() -> str:
    return (Path(__file__).parent / "page.css").read_text()


def _up(document: doc.Document) -> str:
    link = document.up
    return f'<p class="up"><a href="{escape(link.url)}">← {escape(link.text)}</a></p>\n' if link else ""


class _Page:
    def __init__(self, document: doc.Document) -> None:
        self.document = document
        self.remarks = Remarks(document.lang)

    @property
    def title(self) -> str:
        named = (block for block in self.document.blocks if isinstance(block, doc.Heading))
        return self.document.title or next((heading.text for heading in named), "flagperf")

    def body(self) -> str:
        """What comes before the first main heading is the head of the page; each main heading begins a section."""
        sections = list(_sections(self.document.blocks))
        written = [self._section(number, blocks) for number, blocks in enumerate(sections)]
        titles = [blocks[0] for blocks in sections if isinstance(blocks[0], doc.Heading) and blocks[0].level == 2]
        head = written[0] if sections and not _begins_section(sections[0][0]) else ""
        rest = written[1:] if head else written
        return "\n".join(filter(None, [head, self._contents(titles, 1 if head else 0), *rest, self._remarks()]))

    def _contents(self, titles: Sequence[doc.Block], first: int) -> str:
        if len(titles) < 2:
            return ""
        links = [
            f'<a href="#part-{number}">{escape(title.text)}</a>'
            for number, title in enumerate(titles, start=first)
            if isinstance(title, doc.Heading)
        ]
        return f'<nav aria-label="{escape(web("contents", self.document.lang))}">{"".join(links)}</nav>'

    def _section(self, number: int, blocks: Sequence[doc.Block]) -> str:
        inside = "\n".join(self.blocks(blocks))
        if not _begins_section(blocks[0]):
            return f"<header>{inside}</header>"
        return f'<section id="part-{number}">\n{inside}\n</section>'

    def _remarks(self) -> str:
        if not self.remarks.texts:
            return ""
        items = [f'<li id="remark-{number}">{escape(text)}</li>' for number, text in enumerate(self.remarks.texts, 1)]
        title = escape(web("remarks", self.document.lang))
        return f'<section><h2>{title}</h2><ol class="refs">{"".join(items)}</ol></section>'

    # --- blocks ---

    def blocks(self, blocks: Sequence[doc.Block]) -> Iterator[str]:
        """Neighbours of one kind share a grid: figures, headlines, facts."""
        for kind, group in groupby(blocks, key=_grid):
            of_kind = list(group)
            if kind == "charts":
                figures = "".join(figure_html(each) for each in of_kind if isinstance(each, Figure))
                yield f'<div class="charts">{figures}</div>'
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
                return self._bullets(block)
            case doc.Table():
                return self._table(block)
            case doc.Code(text):
                lines = "\n".join(map(escape, visible_lines(text)))
                return f"<pre>{lines}</pre>"
            case doc.Notes():
                return self._notes(block)
            case doc.Fold(title, blocks):
                return self._fold(title, "".join(self.blocks(blocks)))
            case doc.Headline():
                return self._headlines([block])
            case doc.Chart() | doc.Histogram() | doc.Shares() | doc.Bars() | doc.Intervals() | doc.HeatMap():
                return figure_html(block)

    def _fold(self, title: str, inside: str) -> str:
        return f'<details class="fold"><summary>{escape(title)}</summary><div class="inside">{inside}</div></details>'

    def _facts(self, block: doc.Facts) -> str:
        title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
        return f'<div class="card">{title}<dl class="facts">{"".join(map(self._fact, block.facts))}</dl></div>'

    def _fact(self, fact: doc.Fact) -> str:
        """There is room for the reason of what is missing."""
        note = f' <span class="none">({escape(fact.note)})</span>' if fact.note else ""
        if isinstance(fact.cell, doc.Empty):
            why = explain(fact.cell.reason, self.remarks.lang, fact.cell.detail)
            value = f'<span class="none">{NO_VALUE} {escape(why)}</span>'
        else:
            value = cell_html(fact.cell, self.remarks)
        return f"<dt>{escape(fact.label)}</dt><dd>{value}{note}</dd>"

    def _bullets(self, block: doc.Bullets) -> str:
        tag = "ol" if block.numbered else "ul"
        title = f'<div class="title">{escape(block.title)}</div>' if block.title else ""
        items = "".join(f"<li>{cell_html(item, self.remarks)}</li>" for item in block.items)
        return f'<div class="card">{title}<{tag} class="list">{items}</{tag}></div>'

    def _notes(self, block: doc.Notes) -> str:
        groups = [
            f"<div>{f'<h3>{escape(group.subject)}</h3>' if group.subject else ''}"
            f'<ul class="list">{"".join(f"<li>{escape(note)}</li>" for note in group.notes)}</ul></div>'
            for group in block.groups
        ]
        return f'<div class="groups">{"".join(groups)}</div>'

    # --- tables ---

    def _table(self, block: doc.Table) -> str:
        """Without columns that say nothing."""
        columns = [[row[index] for row in block.rows] for index in range(len(block.heads))]
        kinds = {index: column_class(cells) for index, cells in enumerate(columns) if _says_something(cells)}
        heads = "".join(_head(block.heads[index], kind) for index, kind in kinds.items())
        rows = "".join(f"<tr>{self._row(row, kinds)}</tr>" for row in block.rows)
        many = ' class="many"' if len(kinds) > MANY_COLUMNS else ""
        table = f'<div class="box"><table{many}><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        remark = f'<p class="remark">{escape(block.remark)}</p>' if block.remark else ""
        if block.collapsed:
            return self._fold(f"{block.title} ({len(block.rows)})", table + remark)
        title = f'<div class="title">{escape(block.title)}</div>' if block.title else ""
        return f"<div>{title}{table}{remark}</div>"

    def _row(self, row: Sequence[doc.TableCell], kinds: Mapping[int, str]) -> str:
        cells = ((row[index], kind) for index, kind in kinds.items())
        return "".join(f'<td class="{kind}">{self._table_cell(cell)}</td>' for cell, kind in cells)

    def _table_cell(self, cell: doc.TableCell) -> str:
        if isinstance(cell, doc.Link):
            return link_html(cell.text, cell.url, short_path(cell.text))
        if isinstance(cell, doc.Links):
            return links_html(cell.links)
        return cell_html(cell, self.remarks)

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
        return f"<div>{what}{value}{note}{self._marks(figure.cell.marks)}</div>"

    def _marks(self, marks: Sequence[str]) -> str:
        lang = self.remarks.lang
        found = [
            f'<span class="mark" title="{escape(meaning(mark, lang))}">{escape(mark)}</span>'
            f"{self.remarks.reference(mark, explain(mark, lang))}"
            for mark in marks
        ]
        return f'<div class="note">{" ".join(found)}</div>' if found else ""


def _begins_section(block: doc.Block) -> bool:
    return isinstance(block, doc.Heading) and block.level == 2


def _sections(blocks: Sequence[doc.Block]) -> Iterator[list[doc.Block]]:
    found: list[doc.Block] = []
    for block in blocks:
        if _begins_section(block) and found:
            yield found
            found = []
        found.append(block)
    if found:
        yield found


def _grid(block: doc.Block) -> str:
    if isinstance(block, Figure):
        return "charts"
    if isinstance(block, doc.Headline):
        return "headlines"
    return "facts" if isinstance(block, doc.Facts) else ""


def _says_something(cells: Sequence[doc.TableCell]) -> bool:
    return not cells or any(isinstance(cell, doc.Empty) or text_of(cell) for cell in cells)


def _head(head: doc.Head, kind: str) -> str:
    classes = " ".join(filter(None, [kind if kind == "num" else "", "star" if head.headline else ""]))
    title = ("*" if head.headline else "") + may_break(escape(head.title))
    return f'<th class="{classes}">{title}</th>' if classes else f"<th>{title}</th>"


def visible_lines(text: str) -> list[str]:
    return [visible(re.sub("\t", "    ", line)) for line in text.split("\n")]
