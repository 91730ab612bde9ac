"""Render a document for a terminal: aligned columns that fit the width, no boxes, optional color.

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

# Plain text for terminals and tables: control characters removed, width in columns, wrapped between words.


_WIDE = "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"

_WORD = re.compile(rf" ?(?:[{_WIDE}]|[^ {_WIDE}]+)")
"""A word with its leading space. Chinese has no spaces and may be wrapped after every character."""


def printable(text: str) -> str:
    """One line without control characters, so that output of files and tools cannot break a table or control a
    terminal."""
    return without_controls(" ".join(text.split()))


def display_width(text: str) -> int:
    """Terminal columns: Chinese characters take two, combining accents none."""
    if text.isascii():
        return len(text)
    return sum(_columns(letter) for letter in text)


def pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def fold(text: str, width: int) -> list[str]:
    """Wrap into lines of at most `width` columns. A longer word gets its own line and is not split."""
    lines = [""]
    for word in _WORD.findall(text):
        if lines[-1] and display_width(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word if lines[-1] else word.lstrip()
    return lines


def longest_word(text: str) -> int:
    return max((display_width(word.lstrip()) for word in _WORD.findall(text)), default=0)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


# Text in columns, wrapped between words to fit a width.


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


def natural_width(rows: Rows) -> int:
    return _total(_natural(rows))


def grid(rows: Rows, width: int, *, color: bool) -> list[str] | None:
    """The lines of the table, or None if it cannot fit `width` without splitting a word."""
    widths = _widths(rows, width)
    return None if widths is None else [line for row in rows for line in _lines(row, widths, color)]


def _natural(rows: Rows) -> list[int]:
    return [max(display_width(piece.text) for piece in column) for column in zip(*rows, strict=True)]


def _widths(rows: Rows, width: int) -> list[int] | None:
    """Shrink the widest column first. None if no column can shrink further."""
    widths = _natural(rows)
    least = [max(longest_word(piece.text) for piece in column) for column in zip(*rows, strict=True)]
    while _total(widths) > width:
        shrinkable = [index for index, each in enumerate(widths) if each > least[index]]
        if not shrinkable:
            return None
        widths[max(shrinkable, key=lambda index: widths[index])] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _lines(row: Sequence[Piece], widths: Sequence[int], color: bool) -> list[str]:
    columns = [fold(piece.text, width) for piece, width in zip(row, widths, strict=True)]
    return [_line(texts, row, widths, color) for texts in zip_longest(*columns, fillvalue="")]


def _line(texts: Sequence[str], row: Sequence[Piece], widths: Sequence[int], color: bool) -> str:
    cells = [
        styled(text, piece.style, color) + pad(text, width)[len(text) :]
        for text, piece, width in zip(texts, row, widths, strict=True)
    ]
    return GAP.join(cells).rstrip()


NOT_AVAILABLE = "n/a"

LEAST_WIDTH = 40
"""Narrower terminals get lines of this width and wrap them themselves."""


def to_terminal(document: doc.Document, *, width: int, color: bool = False) -> str:
    """The text ends with a newline, or is empty."""
    page = _Terminal(document.lang, max(width, LEAST_WIDTH), color)
    written = [(block, page.block(block)) for block in document.blocks]
    text = ""
    for block, lines in written:
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
            case doc.Bullets():
                return self._bullets(block)
            case doc.Table():
                return self._table(block)
            case doc.Code(text):
                return [GAP + without_controls(line) for line in text.split("\n")]
            case doc.Notes():
                return self._notes(block)
            case doc.Headline():
                return self._headline(block)
            case doc.Fold(title, blocks):
                return [*self._title(title), *(line for each in blocks for line in self.block(each))]
            case doc.Chart() | doc.Histogram() | doc.Shares() | doc.Bars() | doc.Intervals() | doc.HeatMap():
                return []

    def _title(self, text: str) -> list[str]:
        return [styled(line, "bold", self.color) for line in fold(printable(text), self.width)] if text else []

    # --- facts and lists ---

    def _facts(self, block: doc.Facts) -> list[str]:
        full, short = ([self._fact(fact, short) for fact in block.facts] for short in (False, True))
        rows = full if natural_width(full) <= self.width else short
        marks = dict.fromkeys(mark for fact in block.facts for mark in _marks(fact.cell))
        rows += [(Piece(printable(mark)), Piece(""), Piece(printable(meaning(mark, self.lang)))) for mark in marks]
        return [*self._title(block.title), *self._grid_or_stack(rows)]

    def _headline(self, block: doc.Headline) -> list[str]:
        cautions = [line for caution in block.cautions for line in fold(printable(caution), self.width)]
        return [*self._title(block.title), *cautions, *self._facts(block.as_facts)]

    def _fact(self, fact: doc.Fact, short: bool) -> tuple[Piece, Piece, Piece]:
        """Label, value, note. The note names the marks of the value; each mark is explained once, below all facts."""
        notes = [fact.note, *_marks(fact.cell)]
        value = _piece(fact.cell, short)
        if isinstance(fact.cell, doc.Empty):
            value = Piece(NOT_AVAILABLE)
            notes.append(explain(fact.cell.reason, self.lang, fact.cell.detail))
        elif isinstance(fact.cell, doc.Value):
            value = Piece(_with_unit(fact.cell))
        return Piece(printable(fact.label)), value, Piece(printable("; ".join(filter(None, notes))))

    def _grid_or_stack(self, rows: Rows) -> list[str]:
        """In columns, or one below the other if a word is too long for a column."""
        if not rows:
            return []
        lines = grid(rows, self.width, color=self.color)
        return lines if lines is not None else [line for row in rows for line in self._stack(row)]

    def _stack(self, row: Sequence[Piece]) -> Iterator[str]:
        label, *values = row
        yield styled(label.text, label.style, self.color)
        for value in values:
            if value.text:
                yield from self._hanging(GAP, value)

    def _bullets(self, block: doc.Bullets) -> list[str]:
        lines = self._title(block.title)
        for number, item in enumerate(block.items, start=1):
            lines += self._hanging(f"{number}. " if block.numbered else "- ", _piece(item))
        return lines

    def _notes(self, block: doc.Notes) -> list[str]:
        lines = self._title(block.title)
        for group in block.groups:
            lines += [printable(group.subject)] if group.subject else []
            for note in group.notes:
                lines += self._hanging("- ", Piece(printable(note)))
        return lines

    def _hanging(self, bullet: str, piece: Piece) -> list[str]:
        first, *rest = fold(piece.text, self.width - len(bullet))
        indented = [bullet + styled(first, piece.style, self.color)]
        return indented + [" " * len(bullet) + styled(line, piece.style, self.color) for line in rest]

    # --- tables ---

    def _table(self, block: doc.Table) -> list[str]:
        if not block.rows:
            return []
        remark = fold(printable(block.remark), self.width) if block.remark else []
        return [*self._title(block.title), *self._fitted(block), *remark]

    def _fitted(self, block: doc.Table) -> list[str]:
        full, short = self._rows(block, short=False), self._rows(block, short=True)
        rows = full if natural_width(full) <= self.width else short
        lines = grid(rows, self.width, color=self.color)
        return lines if lines is not None else self._turned(short)

    def _rows(self, block: doc.Table, short: bool) -> list[list[Piece]]:
        heads = [Piece(("*" if head.headline else "") + printable(head.title), "bold") for head in block.heads]
        return [heads, *([_piece(cell, short) for cell in row] for row in block.rows)]

    def _turned(self, rows: Sequence[Sequence[Piece]]) -> list[str]:
        """The transposed table, split into as many groups as needed."""
        heads, *found = rows
        lines: list[str] = []
        while found:
            num_beside = next((n for n in range(len(found), 1, -1) if self._fits([heads, *found[:n]])), 1)
            turned = list(zip(heads, *found[:num_beside], strict=True))
            lines += [*([""] if lines else []), *self._grid_or_stack(turned)]
            found = found[num_beside:]
        return lines

    def _fits(self, columns: Sequence[Sequence[Piece]]) -> bool:
        return grid(list(zip(*columns, strict=True)), self.width, color=False) is not None


def _piece(cell: doc.TableCell, short: bool = False) -> Piece:
    match cell:
        case doc.Text(text, brief, strong):
            return Piece(printable((short and brief) or text), "bold" if strong else "")
        case doc.Value(text, marks=marks):
            named = f"{text} ({', '.join(marks)})" if marks else text
            return Piece(printable(named))
        case doc.Empty(reason):
            return Piece(printable(reason))
        case doc.Status(text, good):
            return Piece(printable(text), "good" if good else "bad")
        case doc.Link(text):
            return Piece(printable(text))
        case doc.Links(links):
            return Piece(printable(", ".join(link.text for link in links)))


def _with_unit(value: doc.Value) -> str:
    return printable(f"{value.text} {value.unit}" if value.unit else value.text)


def _marks(cell: doc.TableCell) -> tuple[str, ...]:
    return cell.marks if isinstance(cell, doc.Value) else ()


# Plain columns that fit the terminal. Light: `cases list` and the like import no renderer.


LEAST_FOLDED = 16
"""A last column that gets less room is not folded; its rows become blocks."""


def fitted(table: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Columns two spaces apart. Where they are too wide, the last one is folded between words; where that is not
    enough, a row is a block: its first cell, and the others below it."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    room = width - sum(widths[:-1]) - len(GAP) * (len(widths) - 1)
    if room >= min(widths[-1], LEAST_FOLDED):
        for row in table:
            yield from _row(row, widths, room)
    else:
        for row in table:
            yield row[0].rstrip()
            yield from (f"{GAP}{GAP}{line}" for line in _fold(GAP.join(filter(None, row[1:])), width - 2 * len(GAP)))


def _row(row: Sequence[str], widths: Sequence[int], room: int) -> Iterator[str]:
    first, *more = _fold(row[-1], room)
    cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
    yield GAP.join([*cells, first]).rstrip()
    indent = " " * (sum(widths[:-1]) + len(GAP) * (len(widths) - 1))
    yield from (indent + line for line in more)


def _fold(text: str, width: int) -> list[str]:
    """Between words; a word that is longer than a line is not cut."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines
