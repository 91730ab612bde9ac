"""RankLoop: the measured span of one rank, validated while its file is read, with its steps as columns."""

from __future__ import annotations

import math
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
    span = Span(events.loop_began[0].t_ns, events.loop_ended[0].t_ns)
    steps = events.steps
    if events.warmups:
        opened_ns, last_dropped = events.warmups[0].t_ns, events.warmups[0].step
        kept = [step for step in steps if step.step > last_dropped]
    elif warmup.steps:
        opened_ns, kept = span.ended_ns, []
    else:
        opened_ns, kept = span.began_ns, list(steps)
    window = Span(opened_ns, span.ended_ns)
    return RankLoop(
        rank=events.rank,
        timing=events.started.timing,
        span=span,
        window=window,
        first_step=steps[0].step if steps else 0,
        steps_dropped=len(steps) - len(kept),
        samples=integers([step.samples for step in steps]),
        losses=floats([math.nan if step.loss is None else step.loss for step in steps]),
        diverged=frozenset(step.step for step in steps if step.diverged),
        kept=rank_window(events.rank, window, kept, events.pauses),
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
    previous_ns, number = began_ns, None
    for step in events.steps:
        if not previous_ns <= step.began_ns <= step.t_ns <= ended_ns:
            moments = {"began": step.began_ns, "ended": step.t_ns}
            return invalid(events.rank, "loop.step_out_of_order", step=step.step, **moments)
        if number is not None and step.step != number + 1:
            return invalid(events.rank, "loop.step_after_step", step=step.step, before=number)
        if min(step.compute_ns, step.wait_ns, *step.work.values()) < 0:
            return invalid(events.rank, "loop.negative", step=step.step)
        previous_ns, number = step.t_ns, step.step
    return None


def _warmup_mismatch(events: RankEvents, configured: Warmup) -> Absent | None:
    """Warm-up is configured, never detected: the record must have as many warm-up steps as the configuration."""
    rank, steps = events.rank, events.steps
    if not events.warmups:
        if configured.steps and len(steps) > configured.steps:
            return invalid(rank, "loop.warmup_missing", count=len(steps), warmup=configured.steps)
        return None
    warmup = events.warmups[0]
    dropped = sum(step.step <= warmup.step for step in steps)
    if dropped != configured.steps:
        return invalid(rank, "loop.warmup_differs", count=dropped, key=configured.key, warmup=configured.steps)
    late = any(step.t_ns > warmup.t_ns for step in steps if step.step <= warmup.step)
    early = any(step.began_ns < warmup.t_ns for step in steps if step.step > warmup.step)
    if late or early:
        return invalid(rank, "loop.step_across_warmup", at=warmup.t_ns)
    return None


def invalid(rank: int, code: str, **params: Any) -> Absent:
    return absent("invalid_telemetry", code, rank=rank, **params)
