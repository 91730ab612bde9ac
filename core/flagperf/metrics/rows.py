"""Measured rows: what a case measured besides steps, reduced to a few figures. docs/metrics.md, Rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from flagperf.event_files import Span
from flagperf.events import RowMeasured, RowStatus, RowTiming
from flagperf.spec.manifest import RowFigure
from flagperf.stats import Interval, mean_of_batches, median, median_interval, quantile, two_sided
from flagperf.units import SECOND_NS

# How much faster one alternative is than another, from the blocks in which they took turns.
#
# Blocks of the same number are neighbours in time, so what slows both down cancels in their ratio. The ratio is the
# mean of its logarithms over blocks, with an interval that respects that neighbouring blocks are alike. Blocks count
# where their samples count for the medians of both.


Counts = Callable[[RowTiming], Sequence[bool]]
"""Which samples of a row count."""


class Speedup(msgspec.Struct, frozen=True, omit_defaults=True):
    ratio: float
    """Time of the other over the time of this one: above 1 is faster."""
    against: dict[str, str]
    """The labels of the other one that differ."""
    low: float | None = None
    """95 % interval. None where there are too few blocks, or they drift."""
    high: float | None = None
    p: float | None = None
    """Probability of such a difference, or a larger one, between equals."""
    blocks: int = 0
    """Pairs of blocks that count."""


def speedup_of(row: RowMeasured, base: RowMeasured, counts: Counts) -> Speedup | None:
    """None if the other one was not measured."""
    if base.status != "ok" or row.timing is None or base.timing is None:
        return None
    against = {name: label for name, label in base.labels.items() if row.labels.get(name) != label}
    ours, others = (_blocks(each.values, each.timing.block, counts(each.timing)) for each in (row, base) if each.timing)
    logs = [math.log(other / own) for own, other in zip(ours, others, strict=False) if own > 0 and other > 0]
    return _ratio(logs, against) if logs else None


def _ratio(logs: Sequence[float], against: dict[str, str]) -> Speedup:
    found = mean_of_batches(logs)
    if found is None:
        return Speedup(math.exp(median(logs)), against, blocks=len(logs))
    low, high = (math.exp(found.mean + sign * found.half) for sign in (-1, 1))
    p = two_sided(found.mean, found.error, found.degrees)
    return Speedup(math.exp(found.mean), against, low, high, p, len(logs))


def _blocks(values: Sequence[float], size: int, counts: Sequence[bool]) -> list[float]:
    """Give the median of the samples that count of every block, 0 where none does."""
    found = []
    for start in range(0, len(values), size):
        counted = list(itertools.compress(values[start : start + size], counts[start : start + size]))
        found.append(median(counted) if counted else 0.0)
    return found


def holm(probabilities: Sequence[float]) -> list[float]:
    """Corrected for their number: what is below 0.05 in this list is a finding of the whole table, not of one row."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    corrected, highest = [0.0] * len(probabilities), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(probabilities) - place) * probabilities[index]))
        corrected[index] = highest
    return corrected


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
    percentiles: dict[str, float] = {}
    """Those that figures of the case are taken from: p50, p90, p95 or p99."""
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


PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def asked_percentiles(figures: Iterable[RowFigure]) -> dict[str, set[str]]:
    """Return the percentiles that figures are taken from, by the name of the row."""
    found: dict[str, set[str]] = {}
    for figure in figures:
        if figure.amount in PERCENTILES:
            found.setdefault(figure.row, set()).add(figure.amount)
    return found


def measured_rows(
    rank: int, rows: Sequence[RowMeasured], asked: Mapping[str, Collection[str]] | None = None
) -> tuple[MeasuredRow, ...]:
    """Reduce the rows of one rank, in their order. Alternatives are compared with the first of those that took turns.
    `asked` has the percentiles to record, by the name of the row."""
    first: dict[int, RowMeasured] = {}
    found = []
    for row in rows:
        measured = measured_row(rank, row, (asked or {}).get(row.name, ()))
        base = first.setdefault(row.turns, row) if row.turns else row
        has_other = base is not row and measured.median is not None
        speedup = speedup_of(row, base, _counts) if has_other else None
        found.append(msgspec.structs.replace(measured, speedup=speedup))
    return tuple(found)


def measured_row(rank: int, row: RowMeasured, asked: Collection[str] = ()) -> MeasuredRow:
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
        percentiles={name: quantile(counted, share) for name, share in PERCENTILES.items() if name in asked},
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
