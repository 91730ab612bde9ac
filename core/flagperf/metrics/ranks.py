"""RankRecord: the events of one rank by kind, and whether all ranks of a job are there and ended well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from flagperf.events import (
    AnyEvent,
    Evaluated,
    EventFile,
    Logged,
    ModelDescribed,
    PartsReported,
    Reported,
    StepFinished,
    TrainingBegan,
    TrainingEnded,
    WarmupEnded,
    WorkerEnded,
    WorkerStarted,
)
from flagperf.metrics.finding import Absent, named
from flagperf.spec import Job

E = TypeVar("E")


class RankRecord(msgspec.Struct, frozen=True):
    started: WorkerStarted
    models: tuple[ModelDescribed, ...]
    began: tuple[TrainingBegan, ...]
    warmups: tuple[WarmupEnded, ...]
    steps: tuple[StepFinished, ...]
    pauses: tuple[Evaluated | Logged, ...]
    training_ended: tuple[TrainingEnded, ...]
    reports: tuple[Reported, ...]
    parts: tuple[PartsReported, ...]
    ended: WorkerEnded | None

    @property
    def rank(self) -> int:
        return self.started.rank


def of(events: Iterable[AnyEvent], kind: type[E]) -> tuple[E, ...]:
    return tuple(event for event in events if isinstance(event, kind))


def rank_records(files: Iterable[EventFile]) -> tuple[RankRecord, ...]:
    """By rank. A file in which no worker started has nothing to say and is left out."""
    records = (_rank_record(file.events) for file in files if of(file.events, WorkerStarted))
    return tuple(sorted(records, key=lambda record: record.rank))


def failure(job: Job, ranks: Sequence[RankRecord]) -> Absent | None:
    """Why a finished job's numbers cannot be had from these ranks, or None where all are there and succeeded."""
    counts = Counter(record.rank for record in ranks)
    strange = [rank for rank, count in counts.items() if count > 1 or not 0 <= rank < job.world_size]
    if strange:
        return Absent("invalid_telemetry", f"{named('rank', strange)} recorded twice or not of this job")
    missing = [rank for rank in range(job.world_size) if rank not in counts]
    if missing:
        return Absent("run_failed", f"no record of {named('rank', missing)}: {len(ranks)} of {job.world_size} started")
    unhappy = [record for record in ranks if record.ended is None or record.ended.status != "succeeded"]
    if unhappy:
        return Absent("run_failed", f"{named('rank', [r.rank for r in unhappy])} did not succeed: {_end(unhappy[0])}")
    return None


def _rank_record(events: Sequence[AnyEvent]) -> RankRecord:
    ended = of(events, WorkerEnded)
    return RankRecord(
        started=of(events, WorkerStarted)[0],
        models=of(events, ModelDescribed),
        began=of(events, TrainingBegan),
        warmups=of(events, WarmupEnded),
        steps=of(events, StepFinished),
        pauses=of(events, Evaluated) + of(events, Logged),
        training_ended=of(events, TrainingEnded),
        reports=of(events, Reported),
        parts=of(events, PartsReported),
        ended=ended[-1] if ended else None,
    )


def _end(record: RankRecord) -> str:
    if record.ended is not None:
        reason = f" ({record.ended.reason})" if record.ended.reason else ""
        return f"rank {record.rank} ended as {record.ended.status}{reason}"
    where = f"step {record.steps[-1].step}" if record.steps else "its start, before the first step was finished"
    return f"the record of rank {record.rank} stops after {where}"
