"""Table: head and rows of text, for a page or a terminal."""

from __future__ import annotations

import unicodedata

import msgspec


class Table(msgspec.Struct, frozen=True):
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def printable(text: str) -> str:
    """One line without control characters: what files and tools said can neither break a table nor steer a terminal."""
    return "".join(letter for letter in " ".join(text.split()) if unicodedata.category(letter) != "Cc")
