"""Tables as CSV, for programs and for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def csv_text(columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Piece by piece. What a line lacks is empty; numbers are not rounded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow(line)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def harmless(text: str) -> str:
    """Spreadsheets take a text that begins so for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
