"""Metrics and rows of all sides against the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from flagperf.bundle.run_record import Run
from flagperf.compare.ratio import Better, Contrast, geometric_mean, judged, ratio_of, ratio_of_pairs
from flagperf.compare.sides import Side, pairs_of
from flagperf.messages import Message, message
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.registry import entries_of, headline_names, main_entries
from flagperf.metrics.rows import MeasuredRow
from flagperf.stats import median

# The metrics of all sides: what each has, and how each differs from the baseline.


class SideValue(msgspec.Struct, frozen=True):
    """A metric of one side."""

    value: float | None = None
    """The geometric mean over runs, so that ratios are those of the printed values; the median where one is not above
    0."""
    values: tuple[float, ...] = ()
    """The values of all runs that have one, in the order of running."""
    num_runs: int = 0
    """All runs of the side."""
    reason: str = "not_measured"
    detail: Message | str = ""
    marks: tuple[str, ...] = ()
    unit: str = ""
    version: int = 0
    """The version of the formula. 0 if the value was published."""


class VerdictRules(msgspec.Struct, frozen=True):
    """Decides the verdicts of a comparison, besides the figures. Sides are named by their letters."""

    margin: float
    """The smallest margin; that of a noisy side is wider."""
    incomparable: frozenset[str] = frozenset()
    twins: frozenset[str] = frozenset()
    """Sides that differ from the baseline in nothing that is known: A against A."""


class ComparedFigure(msgspec.Struct, frozen=True):
    entry: MetricEntry
    unit: str
    is_main: bool
    is_headline: bool
    sides: tuple[SideValue, ...]
    against: tuple[Contrast, ...]
    """One for every side but the first, the baseline."""


def compare_figures(sides: Sequence[Side], rules: VerdictRules) -> list[ComparedFigure]:
    """Compare the metrics that the baseline and another side have."""
    manifest = sides[0].case
    main = [entry.name for entry in main_entries(manifest)]
    every = {entry.name: entry for entry in entries_of(manifest)}
    found = []
    for name in (*main, *(name for name in every if name not in main)):
        values = tuple(side_value(side, name) for side in sides)
        if not values[0].values or not any(value.values for value in values[1:]):
            continue
        contrasts = [
            _contrast(sides[0], side, values[0], value, name, rules)
            for side, value in zip(sides[1:], values[1:], strict=True)
        ]
        # What one and the same differs by from itself is not a difference between two.
        twins = {
            side.letter: math.expm1(abs(each.ratio.log))
            for side, each in zip(sides[1:], contrasts, strict=True)
            if side.letter in rules.twins and each.ratio is not None
        }
        margins = [
            max(
                rules.margin,
                each.ratio.apart if each.ratio else 0.0,
                *(share for letter, share in twins.items() if letter != side.letter),
            )
            for side, each in zip(sides[1:], contrasts, strict=True)
        ]
        against = tuple(judged(contrasts, margins, [every[name].better] * len(contrasts)))
        is_headline = name in headline_names(manifest.kind, manifest.figures)
        unit = every[name].unit_of(manifest)
        found.append(ComparedFigure(every[name], unit, name in main, is_headline, values, against))
    return found


def side_value(side: Side, name: str) -> SideValue:
    """Return a metric of a side over its runs, or as it was published. Without a value, say why as the first run."""
    if side.reference is not None:
        published = side.reference.values.get(name)
        return SideValue(num_runs=1) if published is None else SideValue(published, (published,), 1)
    found = [metric for recorded in side.runs if (metric := recorded.run.metric(name)) is not None]
    measured = [metric for metric in found if metric.value is not None]
    if not measured:
        reason, detail = (found[0].reason, found[0].message or found[0].detail) if found else ("", "")
        return SideValue(num_runs=len(side.runs), reason=reason or "not_measured", detail=detail)
    values = tuple(float(metric.value) for metric in measured if metric.value is not None)
    return SideValue(
        value=geometric_mean(values) if min(values) > 0 else median(values),
        values=values,
        num_runs=len(side.runs),
        marks=tuple(dict.fromkeys(mark for metric in measured for mark in metric.marks)),
        unit=", ".join(dict.fromkeys(metric.unit for metric in measured)),
        version=max(metric.version for metric in measured),
    )


def _contrast(
    baseline: Side, other: Side, own: SideValue, value: SideValue, name: str, rules: VerdictRules
) -> Contrast:
    if not own.values or not value.values:
        return Contrast(why=message("compare.missing"))
    if own.unit and value.unit and own.unit != value.unit:
        return Contrast(why=message("compare.units", one=own.unit, other=value.unit))
    if min(*own.values, *value.values) <= 0:
        return Contrast(why=message("compare.not_positive"))
    pairs = []
    for ours, theirs in pairs_of(baseline, other):
        one, two = ours.metric(name), theirs.metric(name)
        if one is not None and two is not None and one.value is not None and two.value is not None:
            pairs.append((float(one.value), float(two.value)))
    ratio = ratio_of_pairs(pairs) if pairs else ratio_of(own.values, value.values)
    if other.letter in rules.incomparable:
        return Contrast(ratio, why=message("compare.incomparable"))
    if own.version and value.version and own.version != value.version:
        return Contrast(ratio, why=message("compare.versions", one=own.version, other=value.version))
    return Contrast(ratio)


# Measured rows of all sides, joined by their labels. Many rows are many tests, so verdicts are corrected together.


LabelledRow = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a row."""


class ComparedRow(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str]
    unit: str
    values: tuple[float | None, ...]
    """The geometric mean over the runs of each side. None if the side has no such row."""
    num_runs: tuple[int, ...]
    against: tuple[Contrast, ...]
    marks: tuple[tuple[str, ...], ...] = ()
    """The marks of each side: those of all its runs and devices."""


class RowComparison(msgspec.Struct, frozen=True):
    rows: tuple[ComparedRow, ...] = ()
    """Rows that differ most come first."""
    missing: tuple[int, ...] = ()
    """For each side, the number of rows of the others that it does not have."""


def compare_rows(sides: Sequence[Side], rules: VerdictRules) -> RowComparison:
    """Compare the rows that the baseline and another side have. There are none for cases that measure no rows, and if
    a side is published."""
    found = [_rows(side) for side in sides]
    every = dict.fromkeys(key for each in found for key in each)
    shared = [key for key in every if key in found[0] and sum(key in each for each in found) > 1]
    if not shared:
        return RowComparison()
    contrasts, margins, better = [], [], list[Better | None]()
    pairs = [pairs_of(sides[0], side) for side in sides[1:]]
    for key in shared:
        for side, each, taken in zip(sides[1:], found[1:], pairs, strict=True):
            contrast = _row_contrast(found[0][key], each.get(key), taken, side.letter in rules.incomparable)
            contrasts.append(contrast)
            margins.append(max(rules.margin, contrast.ratio.apart if contrast.ratio else 0.0))
            # A row is a time, or an amount whose direction only its case knows.
            better.append("quicker" if found[0][key].unit == "s" else None)
    verdicts = iter(judged(contrasts, margins, better))
    rows = []
    for (name, labels), of_sides in ((key, [each.get(key) for each in found]) for key in shared):
        rows.append(
            ComparedRow(
                name=name,
                labels=dict(labels),
                unit=found[0][name, labels].unit,
                values=tuple(geometric_mean(row.values) if row else None for row in of_sides),
                num_runs=tuple(len(row.values) if row else 0 for row in of_sides),
                against=tuple(next(verdicts) for _ in sides[1:]),
                marks=tuple(tuple(row.marks) if row else () for row in of_sides),
            )
        )
    rows.sort(key=lambda row: -max(abs(each.ratio.log) if each.ratio else 0.0 for each in row.against))
    return RowComparison(tuple(rows), tuple(sum(key not in each for key in every) for each in found))


class _Row(msgspec.Struct, frozen=True):
    unit: str
    by_run: dict[str, float]
    """Id of the run -> value."""
    marks: dict[str, None]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(self.by_run.values())


def _rows(side: Side) -> dict[LabelledRow, _Row]:
    """Return the rows of a side. The median device of every run stands for it. Rows without a value, or with 0, cannot
    be compared."""
    found: dict[LabelledRow, _Row] = {}
    for recorded in side.runs:
        by_labels: dict[LabelledRow, list[MeasuredRow]] = {}
        for row in recorded.run.rows:
            by_labels.setdefault((row.name, tuple(sorted(row.labels.items()))), []).append(row)
        for key, rows in by_labels.items():
            measured = [row.median for row in rows if row.median is not None and row.median > 0]
            if measured:
                kept = found.setdefault(key, _Row(rows[0].unit, {}, {}))
                kept.by_run[recorded.run.id] = median(measured)
                kept.marks.update(dict.fromkeys(mark for each in rows for mark in each.marks))
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
