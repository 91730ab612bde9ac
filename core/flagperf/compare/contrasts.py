"""Metrics and rows of all sides against the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from flagperf.bundle.run_record import Run
from flagperf.compare.ratio import Better, Contrast, geometric_mean, judged, ratio_of, ratio_of_pairs
from flagperf.compare.sides import Side, pairs_of
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric, MetricEntry
from flagperf.metrics.registry import entries_of, headline_names, main_entries
from flagperf.metrics.rows import MeasuredRow
from flagperf.stats import median

# The metrics of all sides: what each has, and how each differs from the baseline.


class SideValue(msgspec.Struct, frozen=True):
    """A metric of one side."""

    value: float | None = None
    """Geometric mean over runs, so that ratios are those of the printed values; the median where one is not above 0."""
    values: tuple[float, ...] = ()
    """Of every run that has it, in the order of running."""
    num_runs: int = 0
    """Of the side."""
    reason: str = "not_measured"
    detail: Message | str = ""
    marks: tuple[str, ...] = ()
    unit: str = ""
    version: int = 0
    """Of the formula. 0 if it was published."""


class Rules(msgspec.Struct, frozen=True):
    """What decides the verdicts of a comparison, besides the figures. Sides are named by their letters."""

    margin: float
    """The least that is used."""
    incomparable: frozenset[str] = frozenset()
    twins: frozenset[str] = frozenset()
    """Sides that differ from the baseline in nothing that is known: A against A."""


class Figure(msgspec.Struct, frozen=True):
    entry: MetricEntry
    unit: str
    is_main: bool
    is_headline: bool
    sides: tuple[SideValue, ...]
    against: tuple[Contrast, ...]
    """Of every side but the first, the baseline."""


def figures(sides: Sequence[Side], rules: Rules) -> list[Figure]:
    """Those that the baseline and another side have."""
    manifest = sides[0].case
    main = [entry.name for entry in main_entries(manifest)]
    every = {entry.name: entry for entry in entries_of(manifest)}
    found = []
    for name in (*main, *(name for name in every if name not in main)):
        values = tuple(side_value(side, name) for side in sides)
        if values[0].values and any(value.values for value in values[1:]):
            against = _contrasts(sides, values, every[name], rules)
            is_headline = name in headline_names(manifest.kind, manifest.figures)
            unit = every[name].unit_of(manifest)
            found.append(Figure(every[name], unit, name in main, is_headline, values, against))
    return found


def side_value(side: Side, name: str) -> SideValue:
    if side.reference is not None:
        published = side.reference.values.get(name)
        return SideValue(num_runs=1) if published is None else SideValue(published, (published,), 1)
    found = [recorded.run.metric(name) for recorded in side.runs]
    measured = [metric for metric in found if metric is not None and metric.value is not None]
    if not measured:
        return _missing(found, len(side.runs))
    values = tuple(float(metric.value) for metric in measured if metric.value is not None)
    return SideValue(
        value=geometric_mean(values) if min(values) > 0 else median(values),
        values=values,
        num_runs=len(side.runs),
        marks=tuple(dict.fromkeys(mark for metric in measured for mark in metric.marks)),
        unit=", ".join(dict.fromkeys(metric.unit for metric in measured)),
        version=max(metric.version for metric in measured),
    )


def _missing(found: Sequence[Metric | None], num_runs: int) -> SideValue:
    first = next((metric for metric in found if metric is not None), None)
    if first is None:
        return SideValue(num_runs=num_runs)
    return SideValue(num_runs=num_runs, reason=first.reason or "not_measured", detail=first.message or first.detail)


# --- against the baseline -------------------------------------------------------------------------------------------


def _contrasts(
    sides: Sequence[Side], values: Sequence[SideValue], entry: MetricEntry, rules: Rules
) -> tuple[Contrast, ...]:
    others = list(zip(sides[1:], values[1:], strict=True))
    found = [_contrast(sides[0], side, values[0], value, entry.name, rules) for side, value in others]
    margins = _margins([side.letter for side in sides[1:]], found, rules)
    return tuple(judged(found, margins, [entry.better] * len(found)))


def _margins(letters: Sequence[str], found: Sequence[Contrast], rules: Rules) -> list[float]:
    """What one and the same differs by from itself is no difference between two."""
    apart = [each.ratio.apart if each.ratio else 0.0 for each in found]
    twins = {
        letter: math.expm1(abs(each.ratio.log))
        for letter, each in zip(letters, found, strict=True)
        if letter in rules.twins and each.ratio is not None
    }
    return [
        max(rules.margin, own, *(share for twin, share in twins.items() if twin != letter))
        for letter, own in zip(letters, apart, strict=True)
    ]


def _contrast(baseline: Side, other: Side, own: SideValue, value: SideValue, name: str, rules: Rules) -> Contrast:
    if not own.values or not value.values:
        return Contrast(why=message("compare.missing"))
    if own.unit and value.unit and own.unit != value.unit:
        return Contrast(why=message("compare.units", one=own.unit, other=value.unit))
    if min(*own.values, *value.values) <= 0:
        return Contrast(why=message("compare.not_positive"))
    pairs = _pairs(baseline, other, name)
    ratio = ratio_of_pairs(pairs) if pairs else ratio_of(own.values, value.values)
    if other.letter in rules.incomparable:
        return Contrast(ratio, why=message("compare.incomparable"))
    if own.version and value.version and own.version != value.version:
        return Contrast(ratio, why=message("compare.versions", one=own.version, other=value.version))
    return Contrast(ratio)


def _pairs(baseline: Side, other: Side, name: str) -> list[tuple[float, float]]:
    found = [(own.metric(name), theirs.metric(name)) for own, theirs in pairs_of(baseline, other)]
    return [
        (float(own.value), float(theirs.value))
        for own, theirs in found
        if own is not None and theirs is not None and own.value is not None and theirs.value is not None
    ]


# Measured rows of all sides, joined by their labels. Many rows are many tests, so verdicts are corrected together.


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
            contrast = _row_contrast(found[0][key], each.get(key), taken, side.letter in rules.incomparable)
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


def _row_contrast(own: _Row, other: _Row | None, pairs: Sequence[tuple[Run, Run]], is_incomparable: bool) -> Contrast:
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
