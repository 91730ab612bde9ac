"""Render a document as GitHub Markdown, with tables and footnotes. All text is escaped here and only here.

The format of a cell, for readers and parsers:

    12.3              a value
    12.3[^2]          a value with a mark; footnote 2 explains it
    12.3[^2][^3]      a value with two marks
    /[^1]             no value; footnote 1 begins with the reason code
    /                 empty, with no reason needed: nothing was changed, nothing was published
    **12.3**          an emphasised cell (headline metrics, the run's own row)
    [text]            a link; its address is at the end of the page as `[text]: <https://...>`, or inline: (<https://...>)
    <https://...>     a link whose text is the address itself

To parse a cell, strip the padding, the trailing `[^number]` and the surrounding asterisks; the rest is the value or
`/`. Brackets, bars and asterisks in the text itself are escaped with a backslash, so this is unambiguous. A column head
that begins with an escaped asterisk belongs to a headline metric. Footnotes are at the end, one paragraph each:
`[^1]: unknown_peak (what the code means): what was observed`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from flagperf.messages import Lang, explain, say
from flagperf.report import document as doc
from flagperf.report.terminal import display_width, pad, printable
from flagperf.text import without_controls

_SPECIAL = re.compile(
    r"""[\\`*<|\[\]~]                     # special everywhere
    |(?<![^\W_])_|_(?![^\W_])             # an underscore that is not inside a word
    |&(?=\#?\w+;)                         # the start of an entity
    """,
    re.VERBOSE,
)
_BLOCK_START = re.compile(r"\A(\d*)((?<=\d)[.)](?=\s|$)|(?<!\d)(?:>|[#+=-]+(?=\s|$)))")
"""Matches text that would start another block: optional digits (a numbered item), then the character to escape."""
_SAFE_URL = re.compile(r"https?://[^\s<>\"\\|`]+")


MAX_PADDING = 60
"""In columns. Wider cells overflow instead of widening every row of the table."""


def to_markdown(document: doc.Document) -> str:
    footnotes = Footnotes(document.lang)
    written = [_block(block, footnotes) for block in document.blocks]
    return "\n\n".join(text for text in (*written, *footnotes.definitions()) if text) + "\n"


def escape(text: str) -> str:
    """Escape `text` so that Markdown shows it literally, on one line, also inside a table."""
    return _SPECIAL.sub(lambda found: "\\" + found[0], printable(text))


class Footnotes:
    """The end of the page: link addresses, and footnotes in order of first use. Equal texts share a number."""

    def __init__(self, lang: Lang) -> None:
        self.lang: Lang = lang
        self._texts: list[str] = []
        self._urls: dict[str, str] = {}

    def reference(self, text: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
        return f"[^{self._texts.index(text) + 1}]"

    def link(self, text: str, url: str) -> str:
        """Return a reference link if the text needs no escaping.

        Tables strip the backslash of `\\|`, so an escaped text would not match its definition.
        """
        if escape(text) != text or self._urls.setdefault(text, url) != url:
            return f"[{escape(text)}](<{url}>)"
        return f"[{text}]"

    def definitions(self) -> list[str]:
        addresses = "\n".join(f"[{text}]: <{url}>" for text, url in self._urls.items())
        return [addresses, *(f"[^{number}]: {_line(text)}" for number, text in enumerate(self._texts, start=1))]


def _block(block: doc.Block, footnotes: Footnotes) -> str:
    match block:
        case doc.Heading(text, level):
            return f"{'#' * level} {escape(text)}"
        case doc.Paragraph(text):
            return _line(text)
        case doc.Facts():
            return _facts(block, footnotes)
        case doc.Bullets(items):
            lines = [f"* {_line(block.title)}"] if block.title else []
            indent = "  " if block.title else ""
            for number, item in enumerate(items, start=1):
                bullet = f"{number}." if block.numbered else "-"
                lines.append(f"{indent}{bullet} {_unlike_a_block(_cell(item, footnotes))}")
            return "\n".join(lines)
        case doc.Table():
            return _table(block, footnotes)
        case doc.Code(text):
            lines = [without_controls(line).rstrip() for line in text.split("\n")]
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))  # longer than any inside
            return "\n".join([f"{fence}text", *lines, fence])
        case doc.Notes():
            lines = [f"### {escape(block.title)}", ""]
            for group in block.groups:
                lines += [f"- {_line(group.subject)}", *(f"  - {_line(note)}" for note in group.notes)]
            return "\n".join(lines)
        case doc.Headline():
            title = [f"## {escape(block.title)}"] if block.title else []
            cautions = [f"> {_line(caution)}" for caution in block.cautions]
            return "\n\n".join([*title, *cautions, _facts(block.as_facts, footnotes)])
        case doc.Fold(title, blocks):
            return _details(title, [text for each in blocks if (text := _block(each, footnotes))])
        case doc.Chart() | doc.Histogram() | doc.Shares() | doc.Bars() | doc.Intervals() | doc.HeatMap():
            return ""


def _facts(block: doc.Facts, footnotes: Footnotes) -> str:
    indent = "  " if block.title else ""
    lines = [f"- ##### {escape(block.title)}"] if block.title else []
    for fact in block.facts:
        value = _cell(fact.cell, footnotes)
        if fact.note:
            value = say("with_remark", footnotes.lang, text=value, remark=escape(fact.note))
        lines.append(f"{indent}- " + say("line", footnotes.lang, label=_line(fact.label), value=value))
    return "\n".join(lines)


# --- tables ---------------------------------------------------------------------------------------------------------


def _table(block: doc.Table, footnotes: Footnotes) -> str:
    heads = [("\\*" if head.headline else "") + escape(head.title) for head in block.heads]
    rows = [heads, *([_cell(cell, footnotes) for cell in row] for row in block.rows)]
    sizes = [[display_width(cell) for cell in column] for column in zip(*rows, strict=True)]
    widths = [max([3, *(size for size in column if size <= MAX_PADDING)]) for column in sizes]
    lines = (heads, ["-" * width for width in widths], *rows[1:])
    grid = "\n".join(f"| {' | '.join(map(pad, cells, widths))} |" for cells in lines)
    parts = [f"* {_line(block.title)}"] if block.title and not block.collapsed else []
    parts += [grid, *([_line(block.remark)] if block.remark else [])]
    if not block.collapsed:
        return "\n\n".join(parts)
    return _details(say("with_remark", footnotes.lang, text=block.title, remark=len(block.rows)), parts)


def _details(title: str, parts: Sequence[str]) -> str:
    """Write raw HTML; the blank lines make Markdown parse the table inside it."""
    summary = f"<summary>{html.escape(printable(title))}</summary>"
    return "\n\n".join([f"<details>\n{summary}", *parts, "</details>"])


# --- cells ----------------------------------------------------------------------------------------------------------


def _cell(cell: doc.TableCell, footnotes: Footnotes) -> str:
    """Write a cell in the format that the module docstring describes."""
    match cell:
        case doc.Text(text, strong=strong):
            return f"**{escape(text)}**" if strong else escape(text)
        case doc.Value(text, unit, marks):
            notes = [footnotes.reference(explain(mark, footnotes.lang)) for mark in marks]
            return escape(f"{text} {unit}" if unit else text) + "".join(notes)
        case doc.Empty(reason, detail):
            return doc.NOTHING + footnotes.reference(explain(reason, footnotes.lang, detail))
        case doc.Status(text):
            return escape(text)
        case doc.Link(text, url):
            return _link(text, url, footnotes)
        case doc.Links(links):
            return ", ".join(_link(link.text, link.url, footnotes) for link in links)


def _link(text: str, url: str, footnotes: Footnotes) -> str:
    if not _SAFE_URL.fullmatch(url):
        return escape(text)
    return f"<{url}>" if text == url else footnotes.link(text, url)


def _line(text: str) -> str:
    """Escape text at the start of a line."""
    return _unlike_a_block(escape(text))


def _unlike_a_block(markdown: str) -> str:
    """Escape a start that Markdown would read as a heading, list, quote or rule."""
    return _BLOCK_START.sub(r"\1\\\2", markdown, count=1)
