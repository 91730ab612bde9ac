"""Measured rows: what a case measured besides steps, with the median and range of the repeats."""

from __future__ import annotations

import math

import msgspec

from flagperf.events import RowMeasured
from flagperf.robust import median


class MeasuredRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of one rank. The repeats themselves are in the events."""

    name: str
    labels: dict[str, str]
    unit: str
    rank: int = 0
    num_repeats: int = 0
    median: float | None = None
    low: float | None = None
    """The lowest repeat; `high` is the highest."""
    high: float | None = None
    work: dict[str, int] = {}
    problem: str = ""
    """Why there is no value."""


def measured_row(rank: int, row: RowMeasured) -> MeasuredRow:
    found = MeasuredRow(row.name, row.labels, row.unit, rank, len(row.values), work=row.work, problem=row.problem)
    if not row.values or not all(map(math.isfinite, row.values)):
        return found
    return msgspec.structs.replace(found, median=median(row.values), low=min(row.values), high=max(row.values))
