"""Plain columns that fit the terminal. Light: `cases list` and the like import no renderer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from flagperf.cli.output import echo
from flagperf.escapes import one_line

GAP = "  "
PIPE_COLUMNS = 10_000
"""In a pipe a row is one line, whatever its length, unless COLUMNS is set."""

LEAST_FOLDED = 16
"""A last column that gets less room is not folded; its rows become blocks."""


def echo_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for line in fitted([[*map(one_line, row)] for row in (header, *rows)], _terminal_columns()):
        echo(line)


def _terminal_columns() -> int:
    """As shutil.get_terminal_size, whose import (with every format of archives) costs what reading all cases does."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or PIPE_COLUMNS  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return PIPE_COLUMNS


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
