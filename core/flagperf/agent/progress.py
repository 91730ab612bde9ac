"""How far a run is, from the growing files of one rank and one probe."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from flagperf.events import (
    AnyEvent,
    ProbeFailed,
    ProbeStarted,
    Sampled,
    StepFinished,
    TrainingBegan,
    TrainingEnded,
    decode_events,
)
from flagperf.spec import Progress

_WINDOW_STEPS = 50
"""Throughput and time left are over the last steps, so that a slow start does not haunt them."""

_SILENT_INTERVALS, _SILENT_SECONDS = 15, 10.0
"""A memory figure that is older than both is not shown: the probe is silent."""


class GrowingFile:
    """Reads what whole lines were added since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> tuple[AnyEvent, ...]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return ()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return decode_events(whole.splitlines(keepends=True), str(self._path)).events


class ProgressFollower:
    """Follows the node's first rank; samples of the other ranks are taken to be as many."""

    def __init__(self, events: Path, samples: Path, num_ranks: int) -> None:
        self._events, self._samples = GrowingFile(events), GrowingFile(samples)
        self._num_ranks = num_ranks
        self._planned_steps: int | None = None
        self._steps: deque[StepFinished] = deque(maxlen=_WINDOW_STEPS)
        self._used_bytes: int | None = None
        self._used_until_ns = 0
        self._shown_bytes: int | None = None
        self._silent_seconds = _SILENT_SECONDS
        self._phase = "starting"

    def look(self) -> Progress | None:
        """The new state, or None where nothing has changed."""
        new = (*self._events.new_events(), *self._samples.new_events())
        for event in new:
            self._take(event)
        if not new and self._current_bytes() == self._shown_bytes:
            return None
        self._shown_bytes = self._current_bytes()
        return self._progress()

    def _take(self, event: AnyEvent) -> None:
        if isinstance(event, TrainingBegan):
            self._planned_steps, self._phase = event.planned_steps, "training"
        elif isinstance(event, StepFinished):
            self._steps.append(event)
        elif isinstance(event, TrainingEnded):
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
        last = self._steps[-1] if self._steps else None
        seconds_per_step = self._seconds_per_step()
        samples = sum(step.samples for step in list(self._steps)[1:])
        left = None
        if last and self._planned_steps and seconds_per_step:
            since_last = (time.monotonic_ns() - last.t_ns) / 1e9
            left = max(0.0, (self._planned_steps - last.step) * seconds_per_step - since_last)
        return Progress(
            step=last.step if last else 0,
            planned_steps=self._planned_steps,
            samples_per_second=samples * self._num_ranks / self._span_seconds() if seconds_per_step else None,
            loss=last.loss if last else None,
            used_bytes=self._shown_bytes,
            seconds_left=left,
            phase=self._phase,
        )

    def _span_seconds(self) -> float:
        return (self._steps[-1].t_ns - self._steps[0].t_ns) / 1e9

    def _seconds_per_step(self) -> float | None:
        if len(self._steps) < 2:
            return None
        return self._span_seconds() / (len(self._steps) - 1)
