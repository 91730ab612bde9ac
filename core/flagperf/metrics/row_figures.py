"""Figures taken from rows; what replayed operators cost a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from flagperf import units
from flagperf.metrics.entry import CARD, SPEED, Finding, Found, Mark, MetricEntry, Reason, absent
from flagperf.metrics.mfu import peak_marks
from flagperf.metrics.observed import Observed
from flagperf.metrics.rows import PERCENTILES, MeasuredRow
from flagperf.spec.manifest import RowFigure
from flagperf.stats import Interval, median
from flagperf.units import SCALES

# Figures of a case that measures rows: each is taken from the row that case.toml names, as a metric of the run.


REASONS: dict[str, Reason] = {"unsupported": "unsupported", "invalid": "invalid_telemetry"}
"""Status of a row -> why its figure is absent. All others were not measured."""


def figure(wanted: RowFigure, run: Observed) -> Finding:
    """Take the figure from the row of each rank, and combine them as the figure says. If one rank has no value, there
    is none."""
    rows = rows_of(wanted, run)
    if not rows:
        labels = ", ".join(f"{key}={value}" for key, value in wanted.where.items())
        return run.failure or absent("not_measured", "figure.no_row", row=wanted.row, labels=labels)
    for row in rows.values():
        if row.median is None:
            return absent(REASONS.get(row.status, "not_measured"), "figure.problem", status=row.status, why=row.problem)
    values = {key: value_of(wanted, row) for key, row in rows.items()}
    total = OVER[wanted.over](list(values.values()))
    extreme = (key for key, value in values.items() if wanted.over in ("lowest", "highest") and value == total)
    chosen = rows[next(extreme, next(iter(values)))]  # its labels and its share stand for all
    inputs = {"row": wanted.row, "labels": chosen.labels, "per_label" if wanted.by else "per_device": values}
    rated, marks = peak_inputs(wanted, chosen, run)
    interval = interval_of(wanted, chosen) if len(rows) == 1 else None
    return Found(total, {**inputs, **rated}, interval, marks)


def rows_of(wanted: RowFigure, run: Observed) -> dict[str, MeasuredRow]:
    """Return the first row that fits, of every rank that has one; or the slowest of every combination of the labels
    `by`."""
    cards = {rank.rank: f"{rank.card[0]}/{rank.card[1]}" for rank in run.ranks}
    found: dict[str, MeasuredRow] = {}
    for row in run.rows:
        if row.name != wanted.row or not wanted.where.items() <= row.labels.items():
            continue
        if not wanted.by:
            found.setdefault(cards[row.rank], row)
            continue
        key = " - ".join(row.labels.get(label, "") for label in wanted.by)
        if key not in found or slowness(row) > slowness(found[key]):
            found[key] = row
    return found


def slowness(row: MeasuredRow) -> float:
    return math.inf if row.median is None else row.median


def value_of(wanted: RowFigure, row: MeasuredRow) -> float:
    if wanted.amount in PERCENTILES:
        measured = row.percentiles[wanted.amount]
    else:
        measured = (row.median if wanted.amount == "value" else row.rate(wanted.amount)) or 0.0
    return measured / SCALES[wanted.unit]


def interval_of(wanted: RowFigure, row: MeasuredRow) -> Interval | None:
    """Return the interval of the median, or of a rate at the median. A percentile has none."""
    found, scale = row.interval, SCALES[wanted.unit]
    if found is None or wanted.amount in PERCENTILES:
        return None
    if wanted.amount == "value":
        return Interval(found.low / scale, found.high / scale, found.method)
    if found.low <= 0:
        return None
    work = row.work.get(wanted.amount, 0) / scale
    return Interval(work / found.high, work / found.low, found.method)


def peak_inputs(wanted: RowFigure, row: MeasuredRow, run: Observed) -> tuple[dict[str, Any], tuple[Mark, ...]]:
    """Return what the card's peak that bounds the row allows of the figure's amount, the share of it, and marks."""
    limits = {row.bound_by: row.limits[row.bound_by]} if row.bound_by in row.limits else row.limits
    bound = {limit: row.work.get(amount, 0) for amount, limit in limits.items()}
    peak = next((peak for peak in run.job.peaks if bound.get(peak.row)), None)
    if peak is None or not is_rate(wanted):
        return {}, ()
    allowed = peak.value * (row.work.get(wanted.amount, 0) / bound[peak.row])
    inputs: dict[str, Any] = {"peak": allowed, "peak_row": peak.row, "peak_source": peak.source}
    if row.share is None:
        return inputs, ()
    return {**inputs, "share": row.share}, peak_marks(peak)


def is_rate(wanted: RowFigure) -> bool:
    """Whether the figure is work per second, and not a measured value."""
    return wanted.amount != "value" and wanted.amount not in PERCENTILES


OVER: dict[str, Callable[[Sequence[float]], float]] = {"median": median, "sum": sum, "lowest": min, "highest": max}

LOWER_IS_BETTER: dict[str, Literal["quicker", "lower"]] = {
    **dict.fromkeys(("s", "ms", "us"), "quicker"),
    **dict.fromkeys(("W", "J", "kJ"), "lower"),
}
"""Unit -> how. Of measured values in other units the higher one is better."""


def figure_entry(wanted: RowFigure) -> MetricEntry:
    return MetricEntry(
        name=wanted.name,
        unit=wanted.unit,
        group="quality",
        scope="device",
        formula=lambda run: figure(wanted, run),
        format=units.four_digits,
        title=wanted.title,
        remark=wanted.remark,
        marks=(*SPEED, *CARD),
        better="faster" if is_rate(wanted) else LOWER_IS_BETTER.get(wanted.unit, "higher"),
        heading="figures",
    )


# What the replayed operators of another run amount to: which of them make up a step.


PER_STEP = "per_step"
"""Label of the rows of a replay: calls in a step."""


class StepShare(msgspec.Struct, frozen=True):
    """A call, or all calls of one operator."""

    operator: str
    arguments: str
    """Empty for an operator as a whole."""
    per_step: float
    """Calls in a step."""
    seconds: float
    """Of a step."""
    share: float
    """Of the time of all timed calls of a step."""
    roofline_seconds: float | None
    """Of a step at the card's peaks. None where one of them is not known."""
    num_different: int = 1
    """Calls that differ in their arguments."""
    rows: tuple[MeasuredRow, ...] = ()

    @property
    def roofline_share(self) -> float | None:
        """None where inputs were in a cache: the bandwidth of the memory does not bound such a call."""
        if self.roofline_seconds is None or any(map(_is_cached, self.rows)) or not self.seconds:
            return None
        return self.roofline_seconds / self.seconds


class StepBreakdown(msgspec.Struct, frozen=True):
    calls: tuple[StepShare, ...]
    """Those that cost most first, like `operators`."""
    operators: tuple[StepShare, ...]
    seconds: float
    """Of all timed calls of a step."""
    roofline_seconds: float | None
    failed: tuple[MeasuredRow, ...]
    """Calls that could not be measured."""


def step_breakdown(rows: Sequence[MeasuredRow]) -> StepBreakdown:
    """Of the rows of one rank."""
    timed = [row for row in rows if row.median is not None and PER_STEP in row.labels]
    total = sum(_seconds(row) for row in timed)
    calls = _sorted(_share([row], total, row.labels.get("arguments", "")) for row in timed)
    by_operator: dict[str, list[MeasuredRow]] = {}
    for row in timed:
        by_operator.setdefault(row.labels["operator"], []).append(row)
    return StepBreakdown(
        calls=calls,
        operators=_sorted(_share(same, total, "") for same in by_operator.values()),
        seconds=total,
        roofline_seconds=_roofline(timed),
        failed=tuple(row for row in rows if row.status != "ok"),
    )


def _share(rows: Sequence[MeasuredRow], total: float, arguments: str) -> StepShare:
    seconds = sum(map(_seconds, rows))
    return StepShare(
        operator=rows[0].labels["operator"],
        arguments=arguments,
        per_step=sum(map(_per_step, rows)),
        seconds=seconds,
        share=seconds / total if total else 0.0,
        roofline_seconds=_roofline(rows),
        num_different=len(rows),
        rows=tuple(rows),
    )


def _is_cached(row: MeasuredRow) -> bool:
    """Small enough to be in a cache, as the worker says, and bound by what it moves; or faster than memory allows."""
    is_faster = row.roofline is not None and row.roofline > (row.median or 0.0)
    return is_faster or (row.bound_by == "bytes" and row.facts.get("cache") == "hot")


def _sorted(shares: Iterable[StepShare]) -> tuple[StepShare, ...]:
    return tuple(sorted(shares, key=lambda share: -share.seconds))


def _per_step(row: MeasuredRow) -> float:
    return float(row.labels[PER_STEP])


def _seconds(row: MeasuredRow) -> float:
    return _per_step(row) * (row.median or 0.0)


def _roofline(rows: Sequence[MeasuredRow]) -> float | None:
    """A call that was faster than its roofline, out of a cache, cannot become faster: it counts as it is."""
    found = [None if row.roofline is None else _per_step(row) * min(row.roofline, row.median or 0.0) for row in rows]
    known = [seconds for seconds in found if seconds is not None]
    return sum(known) if known and len(known) == len(rows) else None
