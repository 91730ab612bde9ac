"""RankLoop: the measured span of one rank, validated while its file is read, with its steps as columns."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from flagperf.metrics.columns import floats, integers
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.rank_events import RankEvents
from flagperf.metrics.rank_window import RankWindow, rank_window
from flagperf.metrics.span import Span
from flagperf.spec import Job, flatten


class Warmup(msgspec.Struct, frozen=True):
    """The number of warm-up steps in the configuration, and its key there."""

    key: str
    steps: int


class RankLoop(msgspec.Struct, frozen=True):
    rank: int
    timing: str
    span: Span
    """From SpanBegan to SpanEnded."""
    window: Span
    """From the end of warm-up to the end of the span."""
    first_step: int
    """Numbers increase by one. 0 if there are no steps."""
    steps_dropped: int
    """Warm-up."""
    samples: Sequence[int]
    """Of each step, including warm-up, like `losses`."""
    losses: Sequence[float]
    """NaN where a step has no finite loss."""
    diverged: frozenset[int]
    """Numbers of the steps that diverged."""
    kept: RankWindow | Absent
    """The steps after warm-up. Absent if their times contradict each other."""

    @property
    def num_steps(self) -> int:
        return len(self.samples)

    @property
    def steps_kept(self) -> int:
        return self.num_steps - self.steps_dropped


def warmup_of(job: Job, values: str) -> Warmup:
    """`values` is the group of the configuration."""
    key = f"{values}.warmup_steps"
    return Warmup(key, dict(flatten(job.config.values)).get(key, 0))


def rank_loop(events: RankEvents, warmup: Warmup) -> RankLoop | Absent:
    problem = _unusable(events) or _disorder(events) or _warmup_mismatch(events, warmup)
    if problem:
        return problem
    span, steps = Span(events.loop_began[0].t_ns, events.loop_ended[0].t_ns), events.steps
    if events.warmups:
        opened_ns, dropped = events.warmups[0].t_ns, bisect_right(steps.numbers, events.warmups[0].step)
    elif warmup.steps:
        opened_ns, dropped = span.ended_ns, len(steps)
    else:
        opened_ns, dropped = span.began_ns, 0
    window = Span(opened_ns, span.ended_ns)
    return RankLoop(
        rank=events.rank,
        timing=events.started.timing,
        span=span,
        window=window,
        first_step=steps.numbers[0] if steps else 0,
        steps_dropped=dropped,
        samples=integers(steps.work.get("samples") or [0] * len(steps)),
        losses=floats(math.nan if loss is None else loss for loss in steps.losses),
        diverged=frozenset(steps.diverged),
        kept=rank_window(events.rank, window, steps, dropped, events.pauses),
    )


def _unusable(events: RankEvents) -> Absent | None:
    if not events.loop_began or not events.loop_ended:
        return absent("not_measured", "loop.missing", rank=events.rank)
    for code, found in (
        ("loop.many_beginnings", events.loop_began),
        ("loop.many_ends", events.loop_ended),
        ("loop.many_warmups", events.warmups),
    ):
        if len(found) > 1:
            return invalid(events.rank, code, count=len(found))
    return None


def _disorder(events: RankEvents) -> Absent | None:
    """A case runs on one thread and one clock: timestamps increase, steps do not overlap, and step numbers increase by
    one."""
    moments = [events.loop_began[0].t_ns, *(warmup.t_ns for warmup in events.warmups), events.loop_ended[0].t_ns]
    if any(later < earlier for earlier, later in pairwise(moments)):
        return invalid(events.rank, "loop.out_of_order", moments=moments)
    for pause in events.pauses:
        if pause.t_ns < pause.began_ns:
            return invalid(events.rank, "loop.pause_ends_first", ended=pause.t_ns)
    return _step_disorder(events, moments[0], moments[-1])


def _step_disorder(events: RankEvents, began_ns: int, ended_ns: int) -> Absent | None:
    steps, previous_ns, before = events.steps, began_ns, None
    lowest = map(min, steps.computes_ns, steps.waits_ns, *steps.work.values())
    for number, start_ns, end_ns, low in zip(steps.numbers, steps.began_ns, steps.ended_ns, lowest, strict=True):
        if not previous_ns <= start_ns <= end_ns <= ended_ns:
            return invalid(events.rank, "loop.step_out_of_order", step=number, began=start_ns, ended=end_ns)
        if before is not None and number != before + 1:
            return invalid(events.rank, "loop.step_after_step", step=number, before=before)
        if low < 0:
            return invalid(events.rank, "loop.negative", step=number)
        previous_ns, before = end_ns, number
    return None


def _warmup_mismatch(events: RankEvents, configured: Warmup) -> Absent | None:
    """Warm-up is configured, never detected: the record must have as many warm-up steps as the configuration. Requires
    that step numbers increase."""
    rank, steps = events.rank, events.steps
    if not events.warmups:
        if configured.steps and len(steps) > configured.steps:
            return invalid(rank, "loop.warmup_missing", count=len(steps), warmup=configured.steps)
        return None
    warmup = events.warmups[0]
    dropped = bisect_right(steps.numbers, warmup.step)
    if dropped != configured.steps:
        return invalid(rank, "loop.warmup_differs", count=dropped, key=configured.key, warmup=configured.steps)
    late = any(t_ns > warmup.t_ns for t_ns in steps.ended_ns[:dropped])
    early = any(t_ns < warmup.t_ns for t_ns in steps.began_ns[dropped:])
    if late or early:
        return invalid(rank, "loop.step_across_warmup", at=warmup.t_ns)
    return None


def invalid(rank: int, code: str, **params: Any) -> Absent:
    return absent("invalid_telemetry", code, rank=rank, **params)
