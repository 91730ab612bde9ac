"""Figures taken from rows; what replayed operators cost a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flagperf import units
from flagperf.metrics.entry import CARD, SPEED, Finding, Found, Mark, MetricEntry, Reason, absent
from flagperf.metrics.mfu import peak_marks
from flagperf.metrics.observed import Observed
from flagperf.metrics.rows import MeasuredRow
from flagperf.spec.manifest import RowFigure
from flagperf.stats import Interval, median

# Figures of a case that measures rows: each is taken from the row that case.toml names, as a metric of the run.


REASONS: dict[str, Reason] = {"unsupported": "unsupported", "invalid": "invalid_telemetry"}
"""Status of a row -> why its figure is absent. All others were not measured."""


def figure(wanted: RowFigure, run: Observed) -> Finding:
    """Of every rank its row; over ranks as the figure says. One rank without a value leaves none."""
    rows = _rows(wanted, run)
    if not rows:
        return run.failure or absent("not_measured", "figure.no_row", row=wanted.row, labels=_where(wanted))
    for row in rows.values():
        if row.median is None:
            return absent(REASONS.get(row.status, "not_measured"), "figure.problem", status=row.status, why=row.problem)
    values = {key: _value(wanted, row) for key, row in rows.items()}
    chosen = rows[_representative(wanted, values)]
    inputs = {"row": wanted.row, "labels": chosen.labels, "per_label" if wanted.by else "per_device": values}
    rated, marks = _rated(wanted, chosen, run)
    interval = _interval(wanted, chosen) if len(rows) == 1 else None
    return Found(OVER[wanted.over](list(values.values())), {**inputs, **rated}, interval, marks)


def _rows(wanted: RowFigure, run: Observed) -> dict[str, MeasuredRow]:
    """The first that fits, of every rank that has one; or the slowest of every combination of the labels `by`."""
    cards = {rank.rank: f"{rank.card[0]}/{rank.card[1]}" for rank in run.ranks}
    found: dict[str, MeasuredRow] = {}
    for row in run.rows:
        if row.name != wanted.row or not wanted.where.items() <= row.labels.items():
            continue
        if not wanted.by:
            found.setdefault(cards[row.rank], row)
            continue
        key = " - ".join(row.labels.get(label, "") for label in wanted.by)
        if key not in found or _slowness(row) > _slowness(found[key]):
            found[key] = row
    return found


def _slowness(row: MeasuredRow) -> float:
    return math.inf if row.median is None else row.median


def _representative(wanted: RowFigure, values: Mapping[str, float]) -> str:
    """The one whose labels and share stand for all."""
    choose = {"lowest": min, "highest": max}.get(wanted.over)
    return choose(values, key=lambda key: values[key]) if choose else next(iter(values))


def _value(wanted: RowFigure, row: MeasuredRow) -> float:
    assert row.median is not None
    measured = row.median if wanted.amount == "value" else row.rate(wanted.amount) or 0.0
    return measured / SCALES[wanted.unit]


def _interval(wanted: RowFigure, row: MeasuredRow) -> Interval | None:
    """Of a rate, by the interval of the time."""
    found = row.interval
    if found is None or wanted.amount == "value":
        return None if found is None else _scaled(found, SCALES[wanted.unit])
    if found.low <= 0:
        return None
    work = row.work.get(wanted.amount, 0) / SCALES[wanted.unit]
    return Interval(work / found.high, work / found.low, found.method)


def _scaled(interval: Interval, scale: float) -> Interval:
    return msgspec.structs.replace(interval, low=interval.low / scale, high=interval.high / scale)


def _rated(wanted: RowFigure, row: MeasuredRow, run: Observed) -> tuple[dict[str, Any], tuple[Mark, ...]]:
    """What the card's peak that bounds the row allows of the figure's amount, and the share of it."""
    limits = {row.bound_by: row.limits[row.bound_by]} if row.bound_by in row.limits else row.limits
    bound = {limit: row.work.get(amount, 0) for amount, limit in limits.items()}
    peak = next((peak for peak in run.job.peaks if bound.get(peak.row)), None)
    if peak is None or wanted.amount == "value":
        return {}, ()
    allowed = peak.value * (row.work.get(wanted.amount, 0) / bound[peak.row])
    inputs: dict[str, Any] = {"peak": allowed, "peak_row": peak.row, "peak_source": peak.source}
    if row.share is None:
        return inputs, ()
    return {**inputs, "share": row.share}, peak_marks(peak)


def _where(wanted: RowFigure) -> str:
    return ", ".join(f"{key}={value}" for key, value in wanted.where.items())


OVER: dict[str, Callable[[Sequence[float]], float]] = {"median": median, "sum": sum, "lowest": min, "highest": max}

SCALES = {"TFLOPS": 1e12, "TOPS": 1e12, "GB/s": 1e9, "GiB": float(1 << 30), "us": 1e-6, "share": 1.0}
"""What the recorded number of seconds, bytes or operations is divided by."""


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
        better="faster" if wanted.amount != "value" else "quicker" if wanted.unit == "us" else "higher",
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
