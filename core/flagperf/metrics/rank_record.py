"""One rank's file, checked and reduced to columns: RankRecord."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import add, itemgetter, sub
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
from flagperf.spec.values import flatten

# Columns: numbers of one kind in as few bytes as they need. A large run has millions of steps.


def integers(values: Iterable[int]) -> Sequence[int]:
    """Eight bytes each; numbers that do not fit are kept all the same."""
    listed = list(values)
    try:
        return array("q", listed)
    except OverflowError:
        return tuple(listed)


def floats(values: Iterable[float]) -> Sequence[float]:
    return array("d", values)


def sums(columns: Iterable[Sequence[int]]) -> list[int]:
    """Row by row over columns of one length."""
    found: list[int] = []
    for column in columns:
        found = list(map(add, found, column)) if found else list(column)
    return found


def maxima(columns: Iterable[Sequence[int]]) -> list[int]:
    """Row by row over columns of one length."""
    found: list[int] = []
    for column in columns:
        found = list(map(max, found, column)) if found else list(column)
    return found


# Steps: the steps of one rank as columns of equal length. They exist only while the rank's file is read.


class Steps(msgspec.Struct, frozen=True):
    numbers: Sequence[int]
    began_ns: Sequence[int]
    ended_ns: Sequence[int]
    computes_ns: Sequence[int]
    waits_ns: Sequence[int]
    work: dict[str, Sequence[int]]
    """Amount of work (a key of WORK) -> its column, for those that a step has."""
    losses: Sequence[float | None]
    diverged: Sequence[int]
    """Not a column: the numbers of the steps that diverged."""

    def __len__(self) -> int:
        return len(self.numbers)


def steps_of(events: Sequence[StepFinished]) -> Steps:
    works = [step.work for step in events]
    return Steps(
        numbers=[step.step for step in events],
        began_ns=[step.began_ns for step in events],
        ended_ns=[step.t_ns for step in events],
        computes_ns=[step.compute_ns for step in events],
        waits_ns=[step.wait_ns for step in events],
        work={amount: [work.get(amount, 0) for work in works] for amount in sorted(set().union(*works))},
        losses=[step.loss for step in events],
        diverged=[step.step for step in events if step.diverged],
    )


# RankEvents: the events of one rank by type. They exist only while the rank's file is read.


class RankEvents(msgspec.Struct, frozen=True):
    started: WorkerStarted
    models: Sequence[ModelDescribed]
    data: Sequence[DataDescribed]
    loop_began: Sequence[SpanBegan]
    """Start of the measured span; `loop_ended` is its end. A valid record has one of each."""
    warmups: Sequence[WarmupEnded]
    steps: Steps
    pauses: Sequence[SpanEnded]
    loop_ended: Sequence[SpanEnded]
    rows: Sequence[RowMeasured]
    reports: Sequence[Reported]
    parts: Sequence[PartsReported]
    ended: WorkerEnded | None

    @property
    def rank(self) -> int:
        return self.started.rank


def rank_events(file: EventFile, kind: Kind) -> RankEvents | None:
    """None for a file without a WorkerStarted event."""
    events = EventsByType(file.events)
    started, ended, spans = events[WorkerStarted], events[WorkerEnded], events[SpanEnded]
    if not started:
        return None
    return RankEvents(
        started=started[0],
        models=events[ModelDescribed],
        data=events[DataDescribed],
        loop_began=[span for span in events[SpanBegan] if span.name == kind.name],
        warmups=events[WarmupEnded],
        steps=steps_of(events[StepFinished]),
        pauses=[span for span in spans if span.name in kind.pauses],
        loop_ended=[span for span in spans if span.name == kind.name],
        rows=events[RowMeasured],
        reports=events[Reported],
        parts=events[PartsReported],
        ended=ended[-1] if ended else None,
    )


# RankWindow: the durations and counts of one rank after warm-up, made while its file is read. A record whose
# durations do not nest is rejected.


DRIFT = 1e-3
"""Maximum relative drift between the clocks of device and host. Crystals drift by about 20 ppm, so a larger difference
is not drift."""

ROUNDING_NS = 1000
"""Tolerance for the resolution of device timing events, which is below a microsecond."""


class RankWindow(msgspec.Struct, frozen=True):
    """`core_ns <= train_ns <= whole_ns`."""

    rank: int
    whole_ns: int
    train_ns: int
    core_ns: int
    wait_ns: int
    work: Mapping[str, Sequence[int]]
    """Amount of work (a key of WORK) -> its count in each kept step, for those that a step has."""
    computes_ns: Sequence[int]
    """Per kept step: its compute time."""
    periods_ns: Sequence[int]
    """Per kept step: from the end of the previous step to the end of this one, without evaluation and logging."""


Pauses = Sequence[tuple[int, int]]
"""Start and end of each, in nanoseconds."""


def rank_window(rank: int, window: Span, steps: Steps, dropped: int, spans: Sequence[SpanEnded]) -> RankWindow | Absent:
    """All steps but the first, which are dropped. `spans` are the pauses of the rank, in the window and outside."""
    pauses = _pauses(spans, window)
    computes_ns = steps.computes_ns[dropped:]
    train_ns = window.length_ns - sum(ended_ns - began_ns for began_ns, ended_ns in pauses)
    found = RankWindow(
        rank=rank,
        whole_ns=window.length_ns,
        train_ns=train_ns,
        core_ns=min(train_ns, sum(computes_ns)),
        wait_ns=sum(steps.waits_ns[dropped:]),
        work={amount: integers(column[dropped:]) for amount, column in steps.work.items()},
        computes_ns=integers(computes_ns),
        periods_ns=integers(periods_ns(window.began_ns, steps.ended_ns[dropped:], pauses)),
    )
    return _overlap(rank, pauses) or _broken_nesting(found, sum(computes_ns)) or found


def _pauses(spans: Sequence[SpanEnded], window: Span) -> Pauses:
    """Evaluation and logging inside the window, in order."""
    first_ns, last_ns = window.began_ns, window.ended_ns
    clipped = [(max(span.began_ns, first_ns), min(span.t_ns, last_ns)) for span in spans]
    return sorted((pause for pause in clipped if pause[0] < pause[1]), key=itemgetter(0))


def periods_ns(began_ns: int, ended_ns: Sequence[int], pauses: Pauses) -> list[int]:
    moments = [began_ns, *ended_ns]
    running = list(map(sub, moments, _paused_until(pauses, moments)))
    return list(map(sub, running[1:], running))


def _paused_until(pauses: Pauses, moments: Sequence[int]) -> list[int]:
    """For each moment, the total time paused before it."""
    began, ended = [pause[0] for pause in pauses], [pause[1] for pause in pauses]
    before = [0, *accumulate(map(sub, ended, began))]
    paused: list[int] = []
    for moment in moments:
        index = bisect_right(began, moment)
        is_paused = index > 0 and moment < ended[index - 1]
        paused.append(before[index] - (ended[index - 1] - moment if is_paused else 0))
    return paused


def _overlap(rank: int, pauses: Pauses) -> Absent | None:
    for (_, ended_ns), (began_ns, _) in pairwise(pauses):
        if began_ns < ended_ns:
            return absent("invalid_telemetry", "window.pauses_overlap", rank=rank, began=began_ns, ended=ended_ns)
    return None


def _broken_nesting(window: RankWindow, compute_ns: int) -> Absent | None:
    parts = message("window.parts", whole=window.whole_ns, train=window.train_ns)
    for code, part_ns in (("window.compute_too_long", compute_ns), ("window.wait_too_long", window.wait_ns)):
        if part_ns > window.train_ns * (1 + DRIFT) + ROUNDING_NS:
            return absent("invalid_telemetry", code, rank=window.rank, part=part_ns, parts=parts)
    if window.core_ns <= 0:
        return absent("invalid_telemetry", "window.no_compute", rank=window.rank, part=compute_ns, parts=parts)
    return None


# RankLoop: the measured span of one rank, validated while its file is read, with its steps as columns.


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


# RankRecord: what is kept of a rank's events. Also checks that all ranks of a job are present and succeeded.


class RankRecord(msgspec.Struct, frozen=True):
    started: WorkerStarted
    models: tuple[ModelDescribed, ...]
    data: tuple[DataDescribed, ...]
    began_ns: tuple[int, ...]
    """Start of the measured span. A valid record has one."""
    loop: RankLoop | Absent
    """The measured span, or why it cannot be used."""
    last_step: int | None
    rows: tuple[MeasuredRow, ...]
    reports: tuple[Reported, ...]
    """Of rank 0 only, like `parts`: the reports of others are not used."""
    parts: tuple[PartsReported, ...]
    ended: WorkerEnded | None

    @property
    def rank(self) -> int:
        return self.started.rank

    @property
    def card(self) -> DeviceKey:
        return self.started.node_index, self.started.device_id


class RankFile(msgspec.Struct, frozen=True):
    """`record` is None for a file without a WorkerStarted event."""

    record: RankRecord | None
    torn: bool


def rank_files(files: Iterable[EventFile], kind: Kind, warmup: Warmup) -> tuple[RankFile, ...]:
    """Each file is reduced to what the metrics need before the next one is read."""
    return tuple(_rank_file(file, kind, warmup) for file in files)


def _rank_file(file: EventFile, kind: Kind, warmup: Warmup) -> RankFile:
    events = rank_events(file, kind)
    return RankFile(None if events is None else _rank_record(events, warmup), file.torn)


def _rank_record(events: RankEvents, warmup: Warmup) -> RankRecord:
    is_first = events.rank == 0
    return RankRecord(
        started=events.started,
        models=tuple(events.models),
        data=tuple(events.data),
        began_ns=tuple(span.t_ns for span in events.loop_began),
        loop=rank_loop(events, warmup),
        last_step=events.steps.numbers[-1] if events.steps else None,
        rows=measured_rows(events.rank, events.rows),
        reports=tuple(events.reports) if is_first else (),
        parts=tuple(events.parts) if is_first else (),
        ended=events.ended,
    )


def failure_of(job: Job, ranks: Sequence[RankRecord]) -> Absent | None:
    """Why these ranks did not finish the job, or None if all are present and succeeded."""
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
        return absent("run_failed", "rank.unsuccessful", who=who, why=_end(unhappy[0]))
    return None


def _end(record: RankRecord) -> Message:
    if record.ended is not None and record.ended.reason:
        return message("rank.ended_because", rank=record.rank, status=record.ended.status, reason=record.ended.reason)
    if record.ended is not None:
        return message("rank.ended", rank=record.rank, status=record.ended.status)
    if record.last_step is not None:
        return message("rank.stops_after_step", rank=record.rank, step=record.last_step)
    return message("rank.stops_after_start", rank=record.rank)
