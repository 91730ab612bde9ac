"""RankRecord: one rank's file, checked and reduced to columns. A large run has millions of steps."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import add, attrgetter, sub
from typing import Any

import msgspec

from flagperf.event_files import EventFile, EventsByType, Span
from flagperf.events import (
    DataDescribed,
    ModelDescribed,
    PartsReported,
    Reported,
    RowMeasured,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WarmupEnded,
    WorkerEnded,
    WorkerStarted,
)
from flagperf.kinds import Kind
from flagperf.messages import Message, message
from flagperf.metrics.entry import Absent, DeviceKey, absent, named
from flagperf.metrics.rows import MeasuredRow, measured_rows
from flagperf.spec.job import Job

DRIFT = 1e-3
"""Maximum relative drift between the clocks of device and host. Crystals drift by about 20 ppm, so a larger difference
is not drift."""

ROUNDING_NS = 1000
"""Tolerance for the resolution of device timing events, which is below a microsecond."""


class Steps(msgspec.Struct, frozen=True):
    """The measured loop of one rank, and its steps: one column per quantity."""

    rank: int
    loop: Span
    """From SpanBegan to SpanEnded."""
    window: Span
    """From the end of warm-up to the end of the loop."""
    first: int
    """Number of the first step; numbers increase by one. 0 if there are no steps."""
    dropped: int
    """Steps of warm-up."""
    samples: Sequence[int]
    """Of each step, including warm-up, like `losses`."""
    losses: Sequence[float]
    """NaN where a step has no finite loss."""
    diverged: frozenset[int]
    """Numbers of the steps that diverged."""
    train_ns: int
    """Length of the window without evaluation and logging. What follows is of the steps in the window, too."""
    core_ns: int
    wait_ns: int
    work: Mapping[str, Sequence[int]]
    """Amount of work (a key of WORK) -> its count in each step, for those that a step has."""
    compute_ns: Sequence[int]
    period_ns: Sequence[int]
    """From the end of the previous step to the end of this one, without evaluation and logging."""
    problem: Absent | None
    """Why the times in the window contradict each other."""

    @property
    def num_steps(self) -> int:
        return len(self.samples)

    @property
    def num_kept(self) -> int:
        return self.num_steps - self.dropped


class RankRecord(msgspec.Struct, frozen=True):
    started: WorkerStarted
    ended: WorkerEnded | None
    began_ns: int | None
    """Start of the measured loop, also where the loop cannot be used."""
    last_step: int | None
    steps: Steps | Absent
    """The measured loop, or why it cannot be used."""
    models: tuple[ModelDescribed, ...]
    data: tuple[DataDescribed, ...]
    rows: tuple[MeasuredRow, ...]
    reports: tuple[Reported, ...]
    """Only those of rank 0, like `parts`: nobody uses the reports of other ranks."""
    parts: tuple[PartsReported, ...]

    @property
    def rank(self) -> int:
        return self.started.rank

    @property
    def card(self) -> DeviceKey:
        return self.started.node_index, self.started.device_id


def read_rank(
    file: EventFile, kind: Kind, warmup_steps: int, percentiles: Mapping[str, Collection[str]] | None = None
) -> RankRecord | None:
    """Check one file and reduce it to columns. Return None if its worker had not started. `percentiles` are those to
    keep of rows, by the name of the row."""
    events = EventsByType(file.events)
    if not events[WorkerStarted]:
        return None
    started, ended, steps = events[WorkerStarted][0], events[WorkerEnded], events[StepFinished]
    is_first = started.rank == 0
    return RankRecord(
        started=started,
        ended=ended[-1] if ended else None,
        began_ns=next((span.t_ns for span in events[SpanBegan] if span.name == kind.name), None),
        last_step=steps[-1].step if steps else None,
        steps=read_steps(started.rank, events, kind, warmup_steps),
        models=tuple(events[ModelDescribed]),
        data=tuple(events[DataDescribed]),
        rows=measured_rows(started.rank, events[RowMeasured], percentiles),
        reports=tuple(events[Reported]) if is_first else (),
        parts=tuple(events[PartsReported]) if is_first else (),
    )


def read_steps(rank: int, events: EventsByType, kind: Kind, warmup_steps: int) -> Steps | Absent:
    loop = measured_loop(rank, events, kind)
    if isinstance(loop, Absent):
        return loop
    steps, warmups = events[StepFinished], events[WarmupEnded]
    problem = check_steps(rank, steps, loop) or check_warmup(rank, steps, warmups, kind, warmup_steps)
    if problem:
        return problem
    if warmups:
        window, dropped = Span(warmups[0].t_ns, loop.ended_ns), warmup_steps
    elif warmup_steps:  # the loop ended within warm-up
        window, dropped = Span(loop.ended_ns, loop.ended_ns), len(steps)
    else:
        window, dropped = loop, 0
    pauses = pauses_in(window, [span for span in events[SpanEnded] if span.name in kind.pauses])
    train_ns = window.length_ns - sum(pause.length_ns for pause in pauses)
    kept, works = steps[dropped:], [step.work for step in steps]
    compute_ns, wait_ns = [step.compute_ns for step in kept], sum(step.wait_ns for step in kept)
    return Steps(
        rank=rank,
        loop=loop,
        window=window,
        first=steps[0].step if steps else 0,
        dropped=dropped,
        samples=integers(work.get("samples", 0) for work in works),
        losses=floats(math.nan if step.loss is None else step.loss for step in steps),
        diverged=frozenset(step.step for step in steps if step.diverged),
        train_ns=train_ns,
        core_ns=min(train_ns, sum(compute_ns)),
        wait_ns=wait_ns,
        work={
            amount: integers(work.get(amount, 0) for work in works[dropped:]) for amount in sorted(set().union(*works))
        },
        compute_ns=integers(compute_ns),
        period_ns=integers(periods_ns(window.began_ns, [step.t_ns for step in kept], pauses)),
        problem=check_times(rank, window, pauses, train_ns, sum(compute_ns), wait_ns),
    )


# Checks: a case runs on one thread and one clock, so timestamps increase, steps do not overlap and follow each other.


def measured_loop(rank: int, events: EventsByType, kind: Kind) -> Span | Absent:
    """Return the one span that is named like the kind, or what is wrong with its beginning, its end or its pauses."""
    began = [span for span in events[SpanBegan] if span.name == kind.name]
    ended = [span for span in events[SpanEnded] if span.name == kind.name]
    warmups = events[WarmupEnded]
    if not began or not ended:
        return absent("not_measured", "loop.missing", rank=rank)
    counts = {"loop.many_beginnings": len(began), "loop.many_ends": len(ended), "loop.many_warmups": len(warmups)}
    for code, count in counts.items():
        if count > 1:
            return invalid(rank, code, count=count)
    moments = [began[0].t_ns, *(warmup.t_ns for warmup in warmups), ended[0].t_ns]
    if any(later < earlier for earlier, later in pairwise(moments)):
        return invalid(rank, "loop.out_of_order", moments=moments)
    for span in events[SpanEnded]:
        if span.name in kind.pauses and span.t_ns < span.began_ns:
            return invalid(rank, "loop.pause_ends_first", ended=span.t_ns)
    return Span(moments[0], moments[-1])


def check_steps(rank: int, steps: Sequence[StepFinished], loop: Span) -> Absent | None:
    previous_ns, before = loop.began_ns, None
    for step in steps:
        if not previous_ns <= step.began_ns <= step.t_ns <= loop.ended_ns:
            return invalid(rank, "loop.step_out_of_order", step=step.step, began=step.began_ns, ended=step.t_ns)
        if before is not None and step.step != before + 1:
            return invalid(rank, "loop.step_after_step", step=step.step, before=before)
        if min(step.compute_ns, step.wait_ns, *step.work.values()) < 0:
            return invalid(rank, "loop.negative", step=step.step)
        previous_ns, before = step.t_ns, step.step
    return None


def check_warmup(
    rank: int, steps: Sequence[StepFinished], warmups: Sequence[WarmupEnded], kind: Kind, configured: int
) -> Absent | None:
    """Compare the warm-up with the configuration: it is configured, never detected. Needs steps in order."""
    if not warmups:
        if configured and len(steps) > configured:
            return invalid(rank, "loop.warmup_missing", count=len(steps), warmup=configured)
        return None
    at_ns = warmups[0].t_ns
    dropped = bisect_right(steps, warmups[0].step, key=attrgetter("step"))
    if dropped != configured:
        key = f"{kind.values}.warmup_steps"
        return invalid(rank, "loop.warmup_differs", count=dropped, key=key, warmup=configured)
    if any(step.t_ns > at_ns for step in steps[:dropped]) or any(step.began_ns < at_ns for step in steps[dropped:]):
        return invalid(rank, "loop.step_across_warmup", at=at_ns)
    return None


def check_times(
    rank: int, window: Span, pauses: Sequence[Span], train_ns: int, compute_ns: int, wait_ns: int
) -> Absent | None:
    """Check that pauses do not overlap and that computing and waiting fit into what they leave of the window."""
    for one, other in pairwise(pauses):
        if other.began_ns < one.ended_ns:
            times = {"began": other.began_ns, "ended": one.ended_ns}
            return invalid(rank, "window.pauses_overlap", **times)
    parts = message("window.parts", whole=window.length_ns, train=train_ns)
    for code, part_ns in (("window.compute_too_long", compute_ns), ("window.wait_too_long", wait_ns)):
        if part_ns > train_ns * (1 + DRIFT) + ROUNDING_NS:
            return invalid(rank, code, part=part_ns, parts=parts)
    if min(train_ns, compute_ns) <= 0:
        return invalid(rank, "window.no_compute", part=compute_ns, parts=parts)
    return None


def invalid(rank: int, code: str, **params: Any) -> Absent:
    return absent("invalid_telemetry", code, rank=rank, **params)


# Pauses and columns.


def pauses_in(window: Span, spans: Iterable[SpanEnded]) -> list[Span]:
    """Return the parts of the spans that are inside the window, in order."""
    clipped = (Span(max(span.began_ns, window.began_ns), min(span.t_ns, window.ended_ns)) for span in spans)
    return sorted((pause for pause in clipped if pause.length_ns > 0), key=attrgetter("began_ns"))


def periods_ns(began_ns: int, ended_ns: Sequence[int], pauses: Sequence[Span]) -> list[int]:
    """Return the time from each end to the next without the pauses, from `began_ns` on."""
    starts = [pause.began_ns for pause in pauses]
    before = [0, *accumulate(pause.length_ns for pause in pauses)]
    running = []
    for moment in (began_ns, *ended_ns):
        index = bisect_right(starts, moment)
        rest = pauses[index - 1].ended_ns - moment if index else 0  # of a pause that goes on
        running.append(moment - before[index] + max(0, rest))
    return list(map(sub, running[1:], running))


def integers(values: Iterable[int]) -> Sequence[int]:
    """Return a column of eight bytes each, or a tuple if a number does not fit."""
    listed = list(values)
    try:
        return array("q", listed)
    except OverflowError:
        return tuple(listed)


def floats(values: Iterable[float]) -> Sequence[float]:
    return array("d", values)


def sums(columns: Iterable[Sequence[int]]) -> list[int]:
    """Add columns of one length row by row."""
    found: list[int] = []
    for column in columns:
        found = list(map(add, found, column)) if found else list(column)
    return found


def maxima(columns: Iterable[Sequence[int]]) -> list[int]:
    """Return the largest of each row of columns of one length."""
    found: list[int] = []
    for column in columns:
        found = list(map(max, found, column)) if found else list(column)
    return found


# All ranks.


def failure_of(job: Job, ranks: Sequence[RankRecord]) -> Absent | None:
    """Return why these ranks did not finish the job, or None if all are present and succeeded."""
    counts, world_size = Counter(record.rank for record in ranks), job.world_size
    strange = [rank for rank, count in counts.items() if count > 1 or not 0 <= rank < world_size]
    if strange:
        return absent("invalid_telemetry", "rank.repeated", who=named("rank", strange))
    missing = [rank for rank in range(world_size) if rank not in counts]
    if missing:
        return absent("run_failed", "rank.missing", who=named("rank", missing), count=len(ranks), all=world_size)
    unhappy = [record for record in ranks if record.ended is None or record.ended.status != "succeeded"]
    if unhappy:
        who = named("rank", [record.rank for record in unhappy])
        return absent("run_failed", "rank.unsuccessful", who=who, why=how_it_ended(unhappy[0]))
    return None


def how_it_ended(record: RankRecord) -> Message:
    if record.ended is not None and record.ended.reason:
        return message("rank.ended_because", rank=record.rank, status=record.ended.status, reason=record.ended.reason)
    if record.ended is not None:
        return message("rank.ended", rank=record.rank, status=record.ended.status)
    if record.last_step is not None:
        return message("rank.stops_after_step", rank=record.rank, step=record.last_step)
    return message("rank.stops_after_start", rank=record.rank)


def unequal_steps(ranks: Sequence[Steps]) -> Absent | None:
    """Check that all ranks recorded the same steps: an optimizer step involves all of them."""

    def numbers(one: Steps) -> Message:
        if not one.num_steps:
            return message("loop.no_steps")
        return message("loop.steps", first=one.first, last=one.first + one.num_steps - 1)

    first = ranks[0]
    for one in ranks:
        if (one.first, one.num_steps) != (first.first, first.num_steps):
            steps, others = numbers(one), numbers(first)
            return invalid(one.rank, "loop.unequal_steps", steps=steps, other=first.rank, others=others)
    return None
