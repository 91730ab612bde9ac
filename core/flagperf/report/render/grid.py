"""Text in columns, wrapped between words to fit a width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from flagperf.report.render.plain import display_width, fold, longest_word, pad

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
