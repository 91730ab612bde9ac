"""Lay out text for a terminal: documents, and the lists of commands. Columns are aligned and fit the width.

Words are never split. A table that is too wide first uses the short forms of its cells, then wraps them between words.
If it still does not fit, it is transposed: as many rows as fit become columns, and the heads become row labels. A
missing value is shown as its reason code in tables, and with the full explanation among facts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import msgspec

from flagperf.messages import Lang, explain, meaning
from flagperf.report import document as doc
from flagperf.text import without_controls

_WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"

_WORD = re.compile(rf" *(?:[{_WIDE}]|[^ {_WIDE}]+)")
"""A word with the spaces before it. Chinese has no spaces and may be wrapped after every character."""


def printable(text: str) -> str:
    """Return one line without control characters, so that no text of a file or a tool breaks a table or steers a
    terminal."""
    return without_controls(" ".join(text.split()))


def display_width(text: str) -> int:
    """Return the columns of a terminal that the text takes. A Chinese character takes two, a combining accent none."""
    if text.isascii():
        return len(text)
    shown = [letter for letter in text if not unicodedata.combining(letter)]
    return len(shown) + sum(unicodedata.east_asian_width(letter) in "WF" for letter in shown)


def pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def fold(text: str, width: int) -> list[str]:
    """Wrap text into lines of at most `width` columns. The first keeps its indentation; a longer word is not split."""
    lines: list[str] = []
    for word in _WORD.findall(text):
        if lines and display_width(lines[-1] + word) <= width:
            lines[-1] += word
        else:
            lines.append(word.lstrip() if lines else word)
    return lines or [""]


GAP = "  "

STYLES = {"bold": "1", "good": "32", "bad": "31"}
"""Select Graphic Rendition codes of terminals."""


class Piece(msgspec.Struct, frozen=True):
    text: str
    style: str = ""
    """A key of STYLES, or empty."""


Rows = Sequence[Sequence[Piece]]


def styled(text: str, style: str, color: bool) -> str:
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if color and style and text else text


def natural_widths(rows: Rows) -> list[int]:
    return [max(display_width(piece.text) for piece in column) for column in zip(*rows, strict=True)]


def total_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def laid_out(rows: Rows, widths: Sequence[int], *, color: bool = False) -> Iterator[str]:
    """Give the lines of a table whose columns have these widths."""
    for row in rows:
        folded = [fold(piece.text, width) for piece, width in zip(row, widths, strict=True)]
        for texts in zip_longest(*folded, fillvalue=""):
            cells = (
                styled(text, piece.style, color) + pad(text, width)[len(text) :]
                for text, piece, width in zip(texts, row, widths, strict=True)
            )
            yield GAP.join(cells).rstrip()


def grid(rows: Rows, width: int, *, color: bool) -> list[str] | None:
    """Return the lines of the table, or None if it cannot fit `width` without splitting a word. The widest column is
    shrunk first."""
    widths = natural_widths(rows)
    columns = ([piece.text for piece in column] for column in zip(*rows, strict=True))
    least = [max(display_width(word) for text in texts for word in fold(text, 1)) for texts in columns]
    while total_width(widths) > width:
        shrinkable = [index for index, each in enumerate(widths) if each > least[index]]
        if not shrinkable:
            return None
        widths[max(shrinkable, key=lambda index: widths[index])] -= 1
    return list(laid_out(rows, widths, color=color))


LEAST_FOLDED = 16
"""A last column that gets less room is not folded; its rows become blocks."""


def fitted(table: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Give the lines of a list of texts, for commands. Where the columns are too wide, the last one is folded; where
    that is not enough, a row is a block: its first cell, and the others below it."""
    rows = [[Piece(text) for text in row] for row in table]
    widths = natural_widths(rows)
    room = width - total_width(widths) + widths[-1]
    if room >= min(widths[-1], LEAST_FOLDED):
        yield from laid_out(rows, [*widths[:-1], room])
        return
    for first, *more in table:
        yield first.rstrip()
        yield from (f"{GAP}{GAP}{line}" for line in fold(GAP.join(filter(None, more)), width - 2 * len(GAP)))


NOT_AVAILABLE = "n/a"

LEAST_WIDTH = 40
"""Narrower terminals get lines of this width and wrap them themselves."""


def to_terminal(document: doc.Document, *, width: int, color: bool = False) -> str:
    """Return text that ends with a newline, or is empty."""
    page = _Terminal(document.lang, max(width, LEAST_WIDTH), color)
    text = ""
    for block in document.blocks:
        lines = page.block(block)
        text += "".join(line + "\n" for line in lines)
        text += "\n" if lines and not isinstance(block, doc.Heading) else ""
    return text.rstrip("\n") + "\n" if text else ""


class _Terminal:
    def __init__(self, lang: Lang, width: int, color: bool) -> None:
        self.lang: Lang = lang
        self.width = width
        self.color = color

    def block(self, block: doc.Block) -> list[str]:
        match block:
            case doc.Heading(text):
                return self._title(text)
            case doc.Paragraph(text):
                return fold(printable(text), self.width)
            case doc.Facts():
                return self._facts(block)
            case doc.Bullets(items, title, numbered):
                lines = self._title(title)
                for number, item in enumerate(items, start=1):
                    lines += self._hanging(f"{number}. " if numbered else "- ", _piece(item))
                return lines
            case doc.Table():
                return self._table(block) if block.rows else []
            case doc.Code(text):
                return [GAP + without_controls(line) for line in text.split("\n")]
            case doc.Notes(groups, title):
                lines = self._title(title)
                for group in groups:
                    lines += [printable(group.subject)] if group.subject else []
                    for note in group.notes:
                        lines += self._hanging("- ", Piece(printable(note)))
                return lines
            case doc.Headline():
                cautions = [line for caution in block.cautions for line in fold(printable(caution), self.width)]
                return [*self._title(block.title), *cautions, *self._facts(block.as_facts)]
            case doc.Fold(title, blocks):
                return [*self._title(title), *(line for each in blocks for line in self.block(each))]
            case doc.Chart() | doc.Histogram() | doc.Shares() | doc.Bars() | doc.Intervals() | doc.HeatMap():
                return []

    def _title(self, text: str) -> list[str]:
        return [styled(line, "bold", self.color) for line in fold(printable(text), self.width)] if text else []

    def _hanging(self, bullet: str, piece: Piece) -> list[str]:
        first, *rest = fold(piece.text, self.width - len(bullet))
        indented = [bullet + styled(first, piece.style, self.color)]
        return indented + [" " * len(bullet) + styled(line, piece.style, self.color) for line in rest]

    def _facts(self, block: doc.Facts) -> list[str]:
        """Lay out label, value and note. The note names the marks of the value, which are explained once at the end."""
        rows, short = [], []
        marks: dict[str, None] = {}
        for fact in block.facts:
            notes = [fact.note]
            value = brief = _piece(fact.cell)
            if isinstance(fact.cell, doc.Empty):
                value = brief = Piece(NOT_AVAILABLE)
                notes.append(explain(fact.cell.reason, self.lang, fact.cell.detail))
            elif isinstance(fact.cell, doc.Value):
                value = brief = Piece(printable(f"{fact.cell.text} {fact.cell.unit}"))
                notes += fact.cell.marks
                marks |= dict.fromkeys(fact.cell.marks)
            else:
                brief = _piece(fact.cell, short=True)
            label, note = Piece(printable(fact.label)), Piece(printable("; ".join(filter(None, notes))))
            rows.append((label, value, note))
            short.append((label, brief, note))
        rows = rows if total_width(natural_widths(rows)) <= self.width else short
        rows += [(Piece(printable(mark)), Piece(""), Piece(printable(meaning(mark, self.lang)))) for mark in marks]
        return [*self._title(block.title), *self._grid_or_stack(rows)]

    def _grid_or_stack(self, rows: Rows) -> list[str]:
        """Lay rows out in columns, or one below the other if a word is too long for a column."""
        if not rows:
            return []
        lines = grid(rows, self.width, color=self.color)
        if lines is not None:
            return lines
        stacked: list[str] = []
        for label, *values in rows:
            stacked.append(styled(label.text, label.style, self.color))
            stacked += [line for value in values if value.text for line in self._hanging(GAP, value)]
        return stacked

    def _table(self, block: doc.Table) -> list[str]:
        heads = [Piece(("*" if head.headline else "") + printable(head.title), "bold") for head in block.heads]
        full, short = (
            [heads, *([_piece(cell, brief) for cell in row] for row in block.rows)] for brief in (False, True)
        )
        fits = total_width(natural_widths(full)) <= self.width
        lines = grid(full if fits else short, self.width, color=self.color)
        if lines is None:
            lines = self._turned(short)
        remark = fold(printable(block.remark), self.width) if block.remark else []
        return [*self._title(block.title), *lines, *remark]

    def _turned(self, rows: Rows) -> list[str]:
        """Transpose the table, split into as many groups as needed."""
        heads, *found = rows
        lines: list[str] = []
        while found:
            for num_beside in range(len(found), 0, -1):
                turned = list(zip(heads, *found[:num_beside], strict=True))
                if num_beside == 1 or grid(turned, self.width, color=False) is not None:
                    break
            lines += [*([""] if lines else []), *self._grid_or_stack(turned)]
            found = found[num_beside:]
        return lines


def _piece(cell: doc.TableCell, short: bool = False) -> Piece:
    match cell:
        case doc.Text(text, brief, strong):
            return Piece(printable((short and brief) or text), "bold" if strong else "")
        case doc.Value(text, marks=marks):
            return Piece(printable(f"{text} ({', '.join(marks)})" if marks else text))
        case doc.Empty(reason):
            return Piece(printable(reason))
        case doc.Status(text, good):
            return Piece(printable(text), "good" if good else "bad")
        case doc.Link(text):
            return Piece(printable(text))
        case doc.Links(links):
            return Piece(printable(", ".join(link.text for link in links)))
