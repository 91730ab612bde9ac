"""Loop: the validated measured span of every rank, with its steps split into warm-up (dropped) and kept."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from flagperf.events import StepFinished
from flagperf.kinds import Kind
from flagperf.messages import Message, message
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.ranks import RankRecord
from flagperf.spec import Job, flatten


class Span(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def length_ns(self) -> int:
        return self.ended_ns - self.began_ns

    def clipped(self, to: Span) -> Span:
        """The part inside `to`, with length 0 if they do not overlap."""
        began_ns = min(max(self.began_ns, to.began_ns), to.ended_ns)
        return Span(began_ns, max(began_ns, min(self.ended_ns, to.ended_ns)))


class RankLoop(msgspec.Struct, frozen=True):
    rank: int
    timing: str
    span: Span
    """From SpanBegan to SpanEnded."""
    window: Span
    """From the end of warm-up to the end of the span."""
    dropped: tuple[StepFinished, ...]
    kept: tuple[StepFinished, ...]
    pauses: tuple[Span, ...]
    """Evaluation and logging inside the window, in order."""


class Loop(msgspec.Struct, frozen=True):
    ranks: tuple[RankLoop, ...]

    @property
    def steps(self) -> list[tuple[StepFinished, ...]]:
        """All steps, including warm-up. Each item has one StepFinished per rank, indexed by rank."""
        return list(zip(*(rank.dropped + rank.kept for rank in self.ranks), strict=True))

    @property
    def steps_kept(self) -> int:
        return len(self.ranks[0].kept)

    @property
    def steps_dropped(self) -> int:
        return len(self.ranks[0].dropped)


def loop_of(job: Job, kind: Kind, records: Sequence[RankRecord]) -> Loop | Absent:
    """Requires that all ranks succeeded."""
    key = f"{kind.values}.warmup_steps"
    warmup_steps = dict(flatten(job.config.values)).get(key, 0)
    ranks: list[RankLoop] = []
    for record in records:
        problem = _unusable(record) or _disorder(record) or _warmup_mismatch(record, key, warmup_steps)
        if problem:
            return problem
        ranks.append(_rank_loop(record, warmup_steps))
    return _unequal_steps(records) or Loop(tuple(ranks))


def _rank_loop(record: RankRecord, warmup_steps: int) -> RankLoop:
    span = Span(record.loop_began[0].t_ns, record.loop_ended[0].t_ns)
    if record.warmups:
        opened_ns, last_dropped = record.warmups[0].t_ns, record.warmups[0].step
        kept = tuple(step for step in record.steps if step.step > last_dropped)
    elif warmup_steps:
        opened_ns, kept = span.ended_ns, ()
    else:
        opened_ns, kept = span.began_ns, record.steps
    window = Span(opened_ns, span.ended_ns)
    dropped = record.steps[: len(record.steps) - len(kept)]
    return RankLoop(record.rank, record.started.timing, span, window, dropped, kept, _pauses(record, window))


def _pauses(record: RankRecord, window: Span) -> tuple[Span, ...]:
    spans = [Span(pause.began_ns, pause.t_ns).clipped(window) for pause in record.pauses]
    return tuple(sorted((span for span in spans if span.length_ns > 0), key=lambda span: span.began_ns))


def _unusable(record: RankRecord) -> Absent | None:
    if not record.loop_began or not record.loop_ended:
        return absent("not_measured", "loop.missing", rank=record.rank)
    for code, events in (
        ("loop.many_beginnings", record.loop_began),
        ("loop.many_ends", record.loop_ended),
        ("loop.many_warmups", record.warmups),
    ):
        if len(events) > 1:
            return _invalid(record, code, count=len(events))
    return None


def _disorder(record: RankRecord) -> Absent | None:
    """A case runs on one thread and one clock: timestamps increase, steps do not overlap, and step numbers increase by
    one."""
    moments = [record.loop_began[0].t_ns, *(warmup.t_ns for warmup in record.warmups), record.loop_ended[0].t_ns]
    if any(later < earlier for earlier, later in pairwise(moments)):
        return _invalid(record, "loop.out_of_order", moments=moments)
    for pause in record.pauses:
        if pause.t_ns < pause.began_ns:
            return _invalid(record, "loop.pause_ends_first", ended=pause.t_ns)
    return _step_disorder(record, moments[0], moments[-1])


def _step_disorder(record: RankRecord, began_ns: int, ended_ns: int) -> Absent | None:
    previous_ns, number = began_ns, None
    for step in record.steps:
        if not previous_ns <= step.began_ns <= step.t_ns <= ended_ns:
            return _invalid(record, "loop.step_out_of_order", step=step.step, began=step.began_ns, ended=step.t_ns)
        if number is not None and step.step != number + 1:
            return _invalid(record, "loop.step_after_step", step=step.step, before=number)
        if min(step.compute_ns, step.wait_ns, *step.work.values()) < 0:
            return _invalid(record, "loop.negative", step=step.step)
        previous_ns, number = step.t_ns, step.step
    return None


def _warmup_mismatch(record: RankRecord, key: str, warmup_steps: int) -> Absent | None:
    """Warm-up is configured, never detected: the record must have as many warm-up steps as the configuration."""
    if not record.warmups:
        if warmup_steps and len(record.steps) > warmup_steps:
            return _invalid(record, "loop.warmup_missing", count=len(record.steps), warmup=warmup_steps)
        return None
    warmup = record.warmups[0]
    dropped = sum(step.step <= warmup.step for step in record.steps)
    if dropped != warmup_steps:
        return _invalid(record, "loop.warmup_differs", count=dropped, key=key, warmup=warmup_steps)
    late = any(step.t_ns > warmup.t_ns for step in record.steps if step.step <= warmup.step)
    early = any(step.began_ns < warmup.t_ns for step in record.steps if step.step > warmup.step)
    if late or early:
        return _invalid(record, "loop.step_across_warmup", at=warmup.t_ns)
    return None


def _unequal_steps(records: Sequence[RankRecord]) -> Absent | None:
    """An optimizer step involves all ranks, so all must have recorded the same steps."""
    first = records[0]
    for record in records[1:]:
        if _numbers(record) != _numbers(first):
            return _invalid(
                record, "loop.unequal_steps", steps=_numbers(record), other=first.rank, others=_numbers(first)
            )
    return None


def _numbers(record: RankRecord) -> Message:
    if not record.steps:
        return message("loop.no_steps")
    return message("loop.steps", first=record.steps[0].step, last=record.steps[-1].step)


def _invalid(record: RankRecord, code: str, **params: Any) -> Absent:
    return absent("invalid_telemetry", code, rank=record.rank, **params)
