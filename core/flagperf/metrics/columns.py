"""Columns: numbers of one kind in as few bytes as they need. A large run has millions of steps."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from operator import add


def integers(values: Iterable[int]) -> Sequence[int]:
    """Eight bytes each; numbers that do not fit are kept all the same."""
    listed = list(values)
    try:
        return array("q", listed)
    except OverflowError:
        return tuple(listed)


def floats(values: Iterable[float]) -> Sequence[float]:
    return array("d", values)


def sums(columns: Iterable[Sequence[int]]) -> list[int]:
    """Row by row over columns of one length."""
    found: list[int] = []
    for column in columns:
        found = list(map(add, found, column)) if found else list(column)
    return found


def maxima(columns: Iterable[Sequence[int]]) -> list[int]:
    """Row by row over columns of one length."""
    found: list[int] = []
    for column in columns:
        found = list(map(max, found, column)) if found else list(column)
    return found
