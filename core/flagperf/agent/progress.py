"""How far a run is, from the growing files of a node's ranks and probe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from flagperf.errors import BadInput
from flagperf.events import (
    AnyEvent,
    EvaluationAdvanced,
    ProbeFailed,
    ProbeStarted,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
    decode_events,
)
from flagperf.spec import EvaluationProgress, Progress

_WINDOW_STEPS = 50
"""Throughput and ETA are over the last steps, so that a slow start does not distort them."""

_SILENT_INTERVALS, _SILENT_SECONDS = 15, 10.0
"""A memory figure that is older than both is not shown: the probe is silent."""


class GrowingFile:
    """Reads the whole lines that were added since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> tuple[AnyEvent, ...]:
        """None where the file is damaged or cannot be read: whoever reads the record reports it, progress goes on."""
        if not self._path.is_file():  # what is no file (a pipe) might never end
            return ()
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._offset += len(whole)
            return decode_events(whole.splitlines(keepends=True), str(self._path)).events
        except (OSError, BadInput):
            return ()


class RankSteps:
    """The last steps of one rank, and its evaluation under way."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._steps: deque[StepFinished] = deque(maxlen=_WINDOW_STEPS)
        self.evaluation: EvaluationProgress | None = None

    def new_events(self) -> tuple[AnyEvent, ...]:
        new = self._file.new_events()
        for event in new:
            self._apply(event)
        return new

    def _apply(self, event: AnyEvent) -> None:
        if isinstance(event, StepFinished):
            self._steps.append(event)
        elif isinstance(event, EvaluationAdvanced) and event.rows:
            seconds = (event.t_ns - event.began_ns) / 1e9
            self.evaluation = EvaluationProgress(event.rows, event.planned_rows, event.rows / seconds)
        elif isinstance(event, SpanEnded) and event.name == "evaluation":
            self.evaluation = None

    @property
    def last(self) -> StepFinished | None:
        return self._steps[-1] if self._steps else None

    def seconds_per_step(self) -> float | None:
        return self._span_seconds() / (len(self._steps) - 1) if len(self._steps) > 1 else None

    def samples_per_second(self) -> float | None:
        """0 for a rank that leaves the counting to another one, with which it shares its samples."""
        samples = sum(step.samples for step in list(self._steps)[1:])
        return samples / self._span_seconds() if len(self._steps) > 1 else None

    def _span_seconds(self) -> float:
        return (self._steps[-1].t_ns - self._steps[0].t_ns) / 1e9


class ProgressFollower:
    """Follows the ranks of a node and its probe. Steps are those of its first rank."""

    def __init__(self, events: Sequence[Path], samples: Path) -> None:
        self._ranks = [RankSteps(path) for path in events]
        self._samples = GrowingFile(samples)
        self._planned_steps: int | None = None
        self._used_bytes: int | None = None
        self._used_until_ns = 0
        self._shown_bytes: int | None = None
        self._silent_seconds = _SILENT_SECONDS
        self._phase = "starting"
        self._measured_span = ""

    def poll(self) -> Progress | None:
        """The new state, or None where nothing has changed."""
        new = [event for rank in self._ranks for event in rank.new_events()]
        new.extend(self._samples.new_events())
        for event in new:
            self._apply(event)
        if not new and self._current_bytes() == self._shown_bytes:
            return None
        self._shown_bytes = self._current_bytes()
        return self._progress()

    def _apply(self, event: AnyEvent) -> None:
        if isinstance(event, SpanBegan):
            self._planned_steps, self._phase, self._measured_span = event.planned_steps, event.name, event.name
        elif isinstance(event, SpanEnded) and event.name == self._measured_span:
            self._phase = "finishing"
        elif isinstance(event, Sampled) and not event.baseline:
            # Workers that are not there yet, or not any more, have no figure: nothing to show.
            self._used_bytes = max((reading.used_bytes or 0 for reading in event.readings), default=0) or None
            self._used_until_ns = event.t_ns + round(self._silent_seconds * 1e9)
        elif isinstance(event, ProbeStarted):
            self._silent_seconds = max(_SILENT_SECONDS, _SILENT_INTERVALS * event.interval_seconds)
        elif isinstance(event, ProbeFailed):
            self._used_bytes = None

    def _current_bytes(self) -> int | None:
        return self._used_bytes if time.monotonic_ns() <= self._used_until_ns else None

    def _progress(self) -> Progress:
        last = self._ranks[0].last
        speeds = [speed for rank in self._ranks if (speed := rank.samples_per_second()) is not None]
        losses = [rank.last.loss for rank in self._ranks if rank.last and rank.last.loss is not None]
        return Progress(
            step=last.step if last else 0,
            planned_steps=self._planned_steps,
            samples_per_second=sum(speeds) if speeds else None,
            loss=losses[0] if losses else None,
            used_bytes=self._shown_bytes,
            seconds_left=self._seconds_left(),
            phase=self._phase,
            evaluation=self._ranks[0].evaluation,
        )

    def _seconds_left(self) -> float | None:
        first = self._ranks[0]
        seconds_per_step = first.seconds_per_step()
        if not (first.last and self._planned_steps and seconds_per_step and self._phase == self._measured_span):
            return None
        since_last = (time.monotonic_ns() - first.last.t_ns) / 1e9
        return max(0.0, (self._planned_steps - first.last.step) * seconds_per_step - since_last)
