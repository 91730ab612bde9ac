"""Measured rows of all sides, joined by their labels. Many rows are many tests, so verdicts are corrected together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from flagperf.compare.contrast import Better, Contrast, judged
from flagperf.compare.figures import Rules
from flagperf.compare.ratio import geometric_mean, ratio_of, ratio_of_pairs
from flagperf.compare.side import Side, pairs_of
from flagperf.messages import message
from flagperf.metrics import MeasuredRow
from flagperf.robust import median
from flagperf.store.run import Run

Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels."""


class ComparedRow(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str]
    unit: str
    values: tuple[float | None, ...]
    """Of each side, the geometric mean over its runs. None if it has no such row."""
    num_runs: tuple[int, ...]
    against: tuple[Contrast, ...]
    marks: tuple[tuple[str, ...], ...] = ()
    """Of each side: those of all its runs and devices."""


class RowComparison(msgspec.Struct, frozen=True):
    rows: tuple[ComparedRow, ...] = ()
    """Those that differ most first."""
    missing: tuple[int, ...] = ()
    """Of each side: rows of the others that it does not have."""


def compare_rows(sides: Sequence[Side], rules: Rules) -> RowComparison:
    """Empty for cases that measure no rows, and if a side is published."""
    found = [_values(side) for side in sides]
    every = dict.fromkeys(key for each in found for key in each)
    shared = [key for key in every if key in found[0] and sum(key in each for each in found) > 1]
    if not shared:
        return RowComparison()
    contrasts, margins, better = [], [], []
    pairs = [pairs_of(sides[0], side) for side in sides[1:]]
    for key in shared:
        for side, each, taken in zip(sides[1:], found[1:], pairs, strict=True):
            contrast = _contrast(found[0][key], each.get(key), taken, side.letter in rules.incomparable)
            contrasts.append(contrast)
            margins.append(max(rules.margin, contrast.ratio.apart if contrast.ratio else 0.0))
            better.append(_better(found[0][key].unit))
    verdicts = iter(judged(contrasts, margins, better))
    rows = [_compared(key, found, tuple(next(verdicts) for _ in sides[1:])) for key in shared]
    rows.sort(key=lambda row: -max(abs(each.ratio.log) if each.ratio else 0.0 for each in row.against))
    return RowComparison(tuple(rows), tuple(sum(key not in each for key in every) for each in found))


class _Row(msgspec.Struct, frozen=True):
    unit: str
    by_run: dict[str, float]
    """Of every run that has it, by its id."""
    marks: dict[str, None]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(self.by_run.values())


def _values(side: Side) -> dict[Key, _Row]:
    """The median device of every run stands for it. Rows without a value, or with 0, cannot be compared."""
    found: dict[Key, _Row] = {}
    for recorded in side.runs:
        for key, rows in _by_labels(recorded.run.rows).items():
            measured = [row.median for row in rows if row.median is not None and row.median > 0]
            if measured:
                row = found.setdefault(key, _Row(rows[0].unit, {}, {}))
                row.by_run[recorded.run.id] = median(measured)
                row.marks.update(dict.fromkeys(mark for each in rows for mark in each.marks))
    return found


def _by_labels(rows: Iterable[MeasuredRow]) -> dict[Key, list[MeasuredRow]]:
    found: dict[Key, list[MeasuredRow]] = {}
    for row in rows:
        found.setdefault((row.name, tuple(sorted(row.labels.items()))), []).append(row)
    return found


def _contrast(own: _Row, other: _Row | None, pairs: Sequence[tuple[Run, Run]], is_incomparable: bool) -> Contrast:
    if other is None:
        return Contrast(why=message("compare.missing"))
    if own.unit != other.unit:
        return Contrast(why=message("compare.units", one=own.unit, other=other.unit))
    paired = [
        (own.by_run[ours.id], other.by_run[theirs.id])
        for ours, theirs in pairs
        if ours.id in own.by_run and theirs.id in other.by_run
    ]
    ratio = ratio_of_pairs(paired) if paired else ratio_of(own.values, other.values)
    return Contrast(ratio, why=message("compare.incomparable") if is_incomparable else None)


def _better(unit: str) -> Better | None:
    """A row is a time, or an amount whose direction only its case knows."""
    return "quicker" if unit == "s" else None


def _compared(key: Key, found: Sequence[dict[Key, _Row]], against: tuple[Contrast, ...]) -> ComparedRow:
    rows = [each.get(key) for each in found]
    return ComparedRow(
        name=key[0],
        labels=dict(key[1]),
        unit=found[0][key].unit,
        values=tuple(geometric_mean(row.values) if row else None for row in rows),
        num_runs=tuple(len(row.values) if row else 0 for row in rows),
        against=against,
        marks=tuple(tuple(row.marks) if row else () for row in rows),
    )
