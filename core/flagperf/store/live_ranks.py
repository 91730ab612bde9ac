"""What the ranks of a run do now, from their growing files."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from pathlib import Path

from flagperf.events import (
    AnyEvent,
    EvaluationAdvanced,
    RowMeasured,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WorkerEnded,
    WorkerStarted,
)
from flagperf.spec import EvaluationProgress
from flagperf.store.growing import GrowingFile

_WINDOW_STEPS = 50
"""Throughput and ETA are over the last steps, so that a slow start does not distort them."""


class RankSteps:
    """What a rank does now: its phase, its last steps, and its evaluation under way."""

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        self._file = GrowingFile(path, most_bytes)
        self._steps: deque[StepFinished] = deque(maxlen=_WINDOW_STEPS)
        self.rows_ns: list[int] = []
        """When each measured row ended, for a case without steps."""
        self.evaluation: EvaluationProgress | None = None
        self.started: WorkerStarted | None = None
        self.ended: WorkerEnded | None = None
        self.planned_steps: int | None = None
        self.began_ns = 0
        """When the measured span began."""
        self.phase = "starting"
        self._measured_span = ""

    def new_events(self) -> tuple[AnyEvent, ...]:
        new = self._file.new_events()
        for event in new:
            self._apply(event)
        return new

    def _apply(self, event: AnyEvent) -> None:
        if isinstance(event, StepFinished):
            self._steps.append(event)
        elif isinstance(event, RowMeasured):
            self.rows_ns.append(event.t_ns)
        elif isinstance(event, EvaluationAdvanced) and event.rows:
            seconds = (event.t_ns - event.began_ns) / 1e9
            self.evaluation = EvaluationProgress(event.rows, event.planned_rows, event.rows / seconds)
        elif isinstance(event, SpanBegan):
            self.planned_steps, self.began_ns = event.planned_steps, event.t_ns
            self.phase = self._measured_span = event.name
        elif isinstance(event, SpanEnded):
            self._end_span(event.name)
        elif isinstance(event, WorkerStarted):
            self.started = event
        elif isinstance(event, WorkerEnded):
            self.ended = event

    def _end_span(self, name: str) -> None:
        if name == "evaluation":
            self.evaluation = None
        elif name == self._measured_span:
            self.phase = "finishing"

    @property
    def is_measuring(self) -> bool:
        return bool(self._measured_span) and self.phase == self._measured_span

    @property
    def last(self) -> StepFinished | None:
        return self._steps[-1] if self._steps else None

    @property
    def num_done(self) -> int:
        """Steps, or rows of a case without steps."""
        return self.last.step if self.last else len(self.rows_ns)

    @property
    def numbers(self) -> list[int]:
        return [step.step for step in self._steps]

    def seconds_per_step(self, among: Collection[int] | None = None) -> float | None:
        """Of the last steps, or of those `among` them."""
        ends_ns = [step.t_ns for step in self._steps if among is None or step.step in among]
        return (ends_ns[-1] - ends_ns[0]) / 1e9 / (len(ends_ns) - 1) if len(ends_ns) > 1 else None

    def samples_per_second(self) -> float | None:
        """0 for a rank that leaves the counting to another one, with which it shares its samples."""
        samples = sum(step.samples for step in list(self._steps)[1:])
        return samples / self._span_seconds() if len(self._steps) > 1 else None

    def _span_seconds(self) -> float:
        return (self._steps[-1].t_ns - self._steps[0].t_ns) / 1e9

    def seconds_left(self, since_last: float) -> float | None:
        """At most: a case may stop once it reaches its target. `since_last`: since its last step or row, by whatever
        clock."""
        each, planned = self._mean_seconds(), self.planned_steps
        if not (planned and each and self.is_measuring):
            return None
        return max(0.0, (planned - self.num_done) * each - since_last)

    def _mean_seconds(self) -> float | None:
        """Of a step. Rows take their time by what they measure, so the mean of all is all that is known."""
        if not self.rows_ns:
            return self.seconds_per_step()
        return (self.rows_ns[-1] - self.began_ns) / len(self.rows_ns) / 1e9

    @property
    def last_ns(self) -> int:
        """When the last step or row ended, by the clock of the rank."""
        return self.rows_ns[-1] if self.rows_ns else self.last.t_ns if self.last else 0


def common_paces(ranks: Sequence[RankSteps]) -> dict[int, float]:
    """Rank -> seconds per step, over the same steps on every rank, because at any moment some have finished one more
    than others. Ranks that do not wait for each other may have no such steps any more: then over the last steps of
    each. Empty until all have two steps."""
    common = set(ranks[0].numbers).intersection(*(rank.numbers for rank in ranks[1:]))
    is_apart = not common and all(rank.last for rank in ranks)
    paces = {number: rank.seconds_per_step(None if is_apart else common) for number, rank in enumerate(ranks)}
    known = {number: seconds for number, seconds in paces.items() if seconds is not None}
    return known if len(known) == len(ranks) else {}
