"""Printing for terminals: with rich where color is wanted, else aligned columns of nothing but text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

from flagperf.report.summary import RunTable, Summary
from flagperf.report.table import Table, printable
from flagperf.report.texts import label

GAP = "  "

PUBLISHED = label("published", "en")


def print_summary(summary: Summary, *, color: bool, file: TextIO) -> None:
    rows = tuple((row.label, row.value, row.note) for row in summary.rows)
    _print_tables([(summary.title, Table((), rows)), (PUBLISHED, summary.references)], color=color, file=file)


def print_summary_table(table: RunTable, *, color: bool, file: TextIO) -> None:
    notes = Table((), tuple((note,) for note in table.notes))
    _print_tables([("", table.runs), ("", notes), (PUBLISHED, table.references)], color=color, file=file)


def print_table(title: str, table: Table, *, color: bool, file: TextIO) -> None:
    _print_tables([(title, table)], color=color, file=file)


def _print_tables(tables: Sequence[tuple[str, Table]], *, color: bool, file: TextIO) -> None:
    shown = [(title, _cleaned(table)) for title, table in tables if table.rows]
    if color:
        _print_rich(shown, file)
    else:
        file.write("\n".join(_plain(title, table) for title, table in shown))


def _plain(title: str, table: Table) -> str:
    """Ends with a newline."""
    lines = _aligned([table.head, *table.rows] if table.head else table.rows)
    return "".join(line + "\n" for line in ([printable(title)] if title else []) + lines)


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = _widths(rows)
    return [_joined(row, widths) for row in rows]


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(*rows, strict=True)]


def _joined(row: Iterable[str], widths: Iterable[int]) -> str:
    cells = (text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True))
    return GAP.join(cells).rstrip()


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _cleaned(table: Table) -> Table:
    return Table(tuple(map(printable, table.head)), tuple(tuple(map(printable, row)) for row in table.rows))


def _print_rich(tables: Sequence[tuple[str, Table]], file: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    for title, table in tables:
        console = Console(file=file, force_terminal=True, highlight=False)
        if table.head:
            # Figures folded to fit are unreadable: such a table keeps its width, and the terminal wraps its lines.
            console.width = max(console.width, _rich_width(table))
        shown = RichTable(box=box.SIMPLE_HEAD, show_header=bool(table.head), header_style="bold")
        for index in range(len(table.rows[0])):
            head = Text(table.head[index]) if table.head else ""
            shown.add_column(head, overflow="fold", style="cyan" if index == 0 else "")
        for row in table.rows:
            shown.add_row(*map(Text, row))
        if title:
            console.print(Text(printable(title), style="bold"))
        console.print(shown)


def _rich_width(table: Table) -> int:
    """Rich pads a cell with one space on each side, and a line with one on each end."""
    return sum(width + 3 for width in _widths([table.head, *table.rows])) + 2
