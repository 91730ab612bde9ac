"""Measured rows: what a case measured besides steps, reduced to a few figures. docs/metrics.md, Rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from flagperf.events import RowMeasured, RowStatus, RowTiming
from flagperf.metrics.autocorrelation import median_interval
from flagperf.metrics.metric import Interval
from flagperf.metrics.span import Span
from flagperf.metrics.speedup import Speedup, speedup_of
from flagperf.robust import median, quantile
from flagperf.units import SECOND_NS

STEADY_SECONDS = 2.0
"""A row that was timed for longer has a burst, its first second, and counts from its half on."""

BURST_SECONDS = 1.0


class MeasuredRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of one rank. The repeats themselves are in the events."""

    name: str
    labels: dict[str, str]
    unit: str
    rank: int = 0
    num_repeats: int = 0
    """Of those that count."""
    median: float | None = None
    low: float | None = None
    """The lowest repeat; `high` is the highest."""
    high: float | None = None
    work: dict[str, int] = {}
    problem: str = ""
    """Why there is no value."""
    status: RowStatus = "ok"
    p5: float | None = None
    p95: float | None = None
    mean: float | None = None
    """Total time over the number of repeats: what lasts."""
    cv: float | None = None
    """Standard deviation over the mean."""
    interval: Interval | None = None
    """Of the median."""
    burst: float | None = None
    """Median of the first second."""
    first: float | None = None
    """The very first call, in seconds."""
    issue: float | None = None
    """Median time that the host takes to issue a call, in seconds."""
    calls: int = 0
    """Calls in a repeat. 0 for a row that is not timed."""
    clock: str = ""
    settled: bool = True
    limits: dict[str, str] = {}
    facts: dict[str, str] = {}
    roofline: float | None = None
    """Seconds that the card's peaks would need."""
    share: float | None = None
    """`roofline` over `median`."""
    bound_by: str = ""
    """The amount of work that decides the roofline."""

    window: Span | None = None
    """From the first sample to the last, also those that do not count."""
    total_calls: int = 0
    """In the window."""
    busy: float = 0.0
    """Share of the window that samples take."""
    turns: int = 0
    speedup: Speedup | None = None
    """Against the first of the alternatives that it took turns with."""
    power: float | None = None
    """Mean power of the card in the window, in watts."""
    energy: float | None = None
    """Of one call, in joules."""
    power_problem: str = ""
    """Why there is neither: a code."""
    marks: tuple[str, ...] = ()
    """Rules of flagperf.plausibility that it breaks. A record has none."""

    def rate(self, amount: str) -> float | None:
        """Work per second at the median."""
        return self.work.get(amount, 0) / self.median if self.median else None


def measured_rows(rank: int, rows: Sequence[RowMeasured]) -> tuple[MeasuredRow, ...]:
    """In their order. Alternatives are compared with the first of those that took turns."""
    first: dict[int, RowMeasured] = {}
    found = []
    for row in rows:
        measured = measured_row(rank, row)
        base = first.setdefault(row.turns, row) if row.turns else row
        has_other = base is not row and measured.median is not None
        speedup = speedup_of(row, base, _counts) if has_other else None
        found.append(msgspec.structs.replace(measured, speedup=speedup))
    return tuple(found)


def measured_row(rank: int, row: RowMeasured) -> MeasuredRow:
    found = MeasuredRow(
        name=row.name,
        labels=row.labels,
        unit=row.unit,
        rank=rank,
        num_repeats=len(row.values),
        work=row.work,
        problem=row.problem,
        status=row.status,
        limits=row.limits,
        facts=row.facts,
        turns=row.turns,
    )
    if row.status != "ok" or not row.values or not all(map(math.isfinite, row.values)):
        return found
    counted = _steady(row.values, row.timing) if row.timing else row.values
    found = msgspec.structs.replace(
        found,
        num_repeats=len(counted),
        median=median(counted),
        low=min(counted),
        high=max(counted),
        interval=median_interval(counted),
    )
    return _timed(found, row.values, counted, row.timing) if row.timing else found


def _timed(found: MeasuredRow, values: Sequence[float], counted: Sequence[float], timing: RowTiming) -> MeasuredRow:
    mean = math.fsum(counted) / len(counted)
    variance = math.fsum((value - mean) ** 2 for value in counted) / len(counted)
    issue = median(timing.issue_ns) / timing.calls / SECOND_NS if timing.issue_ns else None
    return msgspec.structs.replace(
        found,
        p5=quantile(counted, 0.05),
        p95=quantile(counted, 0.95),
        mean=mean,
        cv=math.sqrt(variance) / mean if mean else None,
        burst=_burst(values, timing),
        first=timing.first_ns / SECOND_NS,
        issue=issue,
        calls=timing.calls,
        clock=timing.clock,
        settled=timing.settled,
        window=Span(timing.began_ns, timing.ended_ns),
        total_calls=len(values) * timing.calls,
        busy=math.fsum(values) * timing.calls * SECOND_NS / max(timing.ended_ns - timing.began_ns, 1),
    )


def _steady(values: Sequence[float], timing: RowTiming) -> Sequence[float]:
    """From the half of the window on, if it was long enough: cards are faster before they are hot."""
    return [value for value, counts in zip(values, _counts(timing), strict=True) if counts]


def _counts(timing: RowTiming) -> list[bool]:
    """Of each sample."""
    window_ns = timing.ended_ns - timing.began_ns
    is_short = window_ns < STEADY_SECONDS * SECOND_NS
    late = [is_short or 2 * start_ns >= window_ns for start_ns in timing.starts_ns]
    return late if any(late) else [True] * len(late)


def _burst(values: Sequence[float], timing: RowTiming) -> float | None:
    if timing.ended_ns - timing.began_ns < STEADY_SECONDS * SECOND_NS:
        return None
    limit_ns = BURST_SECONDS * SECOND_NS
    early = [value for value, start_ns in zip(values, timing.starts_ns, strict=True) if start_ns < limit_ns]
    return median(early) if early else None


def rated(row: MeasuredRow, peaks: Mapping[str, float]) -> MeasuredRow:
    """With its share of what the card's peaks allow, where all of them are known. What computes faster than its peak
    is not what its label says. What moves more than memory or links can was in a cache or was summed up by the network,
    and has no share."""
    if row.median is None or not row.median or not row.limits or not all(name in peaks for name in row.limits.values()):
        return row
    needs = {amount: row.work.get(amount, 0) / peaks[limit] for amount, limit in row.limits.items()}
    bound_by = max(needs, key=lambda amount: needs[amount])
    share = needs[bound_by] / row.median
    if share <= 1:
        return msgspec.structs.replace(row, roofline=needs[bound_by], share=share, bound_by=bound_by)
    if bound_by in ("bytes", "bus_bytes"):
        return msgspec.structs.replace(row, roofline=needs[bound_by], bound_by=bound_by)
    problem = f"{share:.0%} of the card's peak for {row.limits[bound_by]}: it computes something else"
    return MeasuredRow(
        row.name,
        row.labels,
        row.unit,
        row.rank,
        status="invalid",
        problem=problem,
        work=row.work,
        limits=row.limits,
        facts=row.facts,
    )
