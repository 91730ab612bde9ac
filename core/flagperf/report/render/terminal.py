"""Render a document for a terminal: aligned columns that fit the width, no boxes, optional color.

Words are never split. A table that is too wide first uses the short forms of its cells, then wraps them between words.
If it still does not fit, it is transposed: as many rows as fit become columns, and the heads become row labels. A
missing value is shown as its reason code in tables, and with the full explanation among facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf.escapes import without_controls
from flagperf.report import document as doc
from flagperf.report.render.grid import GAP, Piece, Rows, grid, natural_width, styled
from flagperf.report.render.plain import fold, printable
from flagperf.report.texts import Lang, explain, meaning

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
