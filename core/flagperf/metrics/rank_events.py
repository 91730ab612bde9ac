"""RankEvents: the events of one rank by type. They exist only while the rank's file is read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.events import (
    DataDescribed,
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
from flagperf.metrics.by_type import EventsByType
from flagperf.metrics.steps import Steps, steps_of


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
