"""Figures of a case that measures rows: each is taken from the row that case.toml names, as a metric of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from flagperf import units
from flagperf.metrics.entry import CARD, SPEED, MetricEntry
from flagperf.metrics.finding import Finding, Found, absent
from flagperf.metrics.metric import Interval, Mark, Reason
from flagperf.metrics.mfu import peak_marks
from flagperf.metrics.observed import Observed
from flagperf.robust import median
from flagperf.spec import RowFigure

if TYPE_CHECKING:
    from flagperf.metrics.rows import MeasuredRow

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
