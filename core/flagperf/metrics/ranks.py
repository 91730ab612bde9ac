"""RankRecord: what is kept of a rank's events. Also checks that all ranks of a job are present and succeeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from flagperf.events import (
    DataDescribed,
    EventFile,
    ModelDescribed,
    PartsReported,
    Reported,
    WorkerEnded,
    WorkerStarted,
)
from flagperf.kinds import Kind
from flagperf.messages import Message, message
from flagperf.metrics.cards import DeviceKey
from flagperf.metrics.finding import Absent, absent, named
from flagperf.metrics.rank_events import RankEvents, rank_events
from flagperf.metrics.rank_loop import RankLoop, Warmup, rank_loop
from flagperf.metrics.rows import MeasuredRow, measured_rows
from flagperf.spec import Job


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
