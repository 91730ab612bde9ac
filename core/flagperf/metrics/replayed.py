"""What the replayed operators of another run amount to: which of them make up a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from flagperf.metrics.rows import MeasuredRow

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
