"""RankRecord: the events of one rank by type. Also checks that all ranks of a job are present and succeeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from flagperf.events import (
    AnyEvent,
    EventFile,
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
from flagperf.metrics.finding import Absent, absent, named
from flagperf.spec import Job

E = TypeVar("E")


class RankRecord(msgspec.Struct, frozen=True):
    started: WorkerStarted
    models: tuple[ModelDescribed, ...]
    loop_began: tuple[SpanBegan, ...]
    """Start of the measured span; `loop_ended` is its end. A valid record has one of each."""
    warmups: tuple[WarmupEnded, ...]
    steps: tuple[StepFinished, ...]
    pauses: tuple[SpanEnded, ...]
    loop_ended: tuple[SpanEnded, ...]
    rows: tuple[RowMeasured, ...]
    reports: tuple[Reported, ...]
    parts: tuple[PartsReported, ...]
    ended: WorkerEnded | None

    @property
    def rank(self) -> int:
        return self.started.rank


def of(events: Iterable[AnyEvent], kind: type[E]) -> tuple[E, ...]:
    return tuple(event for event in events if isinstance(event, kind))


def rank_records(files: Iterable[EventFile], kind: Kind) -> tuple[RankRecord, ...]:
    """Sorted by rank. Files without a WorkerStarted event are skipped."""
    records = (_rank_record(file.events, kind) for file in files if of(file.events, WorkerStarted))
    return tuple(sorted(records, key=lambda record: record.rank))


def failure_of(job: Job, ranks: Sequence[RankRecord]) -> Absent | None:
    """Why these ranks did not finish the job, or None if all are present and succeeded."""
    counts = Counter(record.rank for record in ranks)
    strange = [rank for rank, count in counts.items() if count > 1 or not 0 <= rank < job.world_size]
    if strange:
        return absent("invalid_telemetry", "rank.repeated", who=named("rank", strange))
    missing = [rank for rank in range(job.world_size) if rank not in counts]
    if missing:
        return absent("run_failed", "rank.missing", who=named("rank", missing), count=len(ranks), all=job.world_size)
    unhappy = [record for record in ranks if record.ended is None or record.ended.status != "succeeded"]
    if unhappy:
        who = named("rank", [record.rank for record in unhappy])
        return absent("run_failed", "rank.unsuccessful", who=who, why=_end(unhappy[0]))
    return None


def _rank_record(events: Sequence[AnyEvent], kind: Kind) -> RankRecord:
    ended, spans = of(events, WorkerEnded), of(events, SpanEnded)
    return RankRecord(
        started=of(events, WorkerStarted)[0],
        models=of(events, ModelDescribed),
        loop_began=tuple(span for span in of(events, SpanBegan) if span.name == kind.name),
        warmups=of(events, WarmupEnded),
        steps=of(events, StepFinished),
        pauses=tuple(span for span in spans if span.name in kind.pauses),
        loop_ended=tuple(span for span in spans if span.name == kind.name),
        rows=of(events, RowMeasured),
        reports=of(events, Reported),
        parts=of(events, PartsReported),
        ended=ended[-1] if ended else None,
    )


def _end(record: RankRecord) -> Message:
    if record.ended is not None and record.ended.reason:
        return message("rank.ended_because", rank=record.rank, status=record.ended.status, reason=record.ended.reason)
    if record.ended is not None:
        return message("rank.ended", rank=record.rank, status=record.ended.status)
    if record.steps:
        return message("rank.stops_after_step", rank=record.rank, step=record.steps[-1].step)
    return message("rank.stops_after_start", rank=record.rank)
