"""How far a run is, from the growing files of a node's ranks and probe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Sequence
from pathlib import Path

from flagperf.api import Device, Reading
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
from flagperf.robust import median
from flagperf.spec import EvaluationProgress, Progress, RankPace

_WINDOW_STEPS = 50
"""Throughput and ETA are over the last steps, so that a slow start does not distort them."""

_SILENT_INTERVALS, _SILENT_SECONDS = 15, 10.0
"""Figures of cards that are older than both are not shown: the probe is silent."""


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


class CardFigures:
    """The last figures of a node's cards, for as long as its probe is not silent."""

    def __init__(self, samples: Path, devices: Sequence[Device]) -> None:
        self._file = GrowingFile(samples)
        self._boards = {device.id: device.board for device in devices}
        self._is_power_of_board = False
        self._last: Sampled | None = None
        self._silent_seconds = _SILENT_SECONDS

    def read(self) -> None:
        for event in self._file.new_events():
            if isinstance(event, Sampled) and not event.baseline:
                self._last = event
            elif isinstance(event, ProbeStarted):
                self._silent_seconds = max(_SILENT_SECONDS, _SILENT_INTERVALS * event.interval_seconds)
                self._is_power_of_board = "power_watts" in event.board_figures
            elif isinstance(event, ProbeFailed):
                self._last = None

    @property
    def used_bytes(self) -> int | None:
        """Of the card that uses most. Workers that are not there yet, or not any more, have no figure."""
        return max((reading.used_bytes or 0 for reading in self._readings()), default=0) or None

    @property
    def power_watts(self) -> float | None:
        """Of all cards, each board counted once where its chips share a figure. None unless all were read."""
        watts: dict[str, float] = {}
        for reading in self._readings():
            if reading.power_watts is None:
                return None
            board = self._boards.get(reading.device_id) if self._is_power_of_board else None
            watts[board or reading.device_id] = reading.power_watts
        return sum(watts.values()) if watts else None

    def _readings(self) -> Sequence[Reading]:
        last = self._last
        if last is None or time.monotonic_ns() > last.t_ns + round(self._silent_seconds * 1e9):
            return ()
        return last.readings


class ProgressFollower:
    """Follows the ranks of a node and its probe. Steps are those of its first rank."""

    def __init__(
        self, events: Sequence[Path], samples: Path, devices: Sequence[Device] = (), first_rank: int = 0
    ) -> None:
        self._ranks = [RankSteps(path) for path in events]
        self._first_rank = first_rank
        self._cards = CardFigures(samples, devices)
        self._shown: tuple[int | None, float | None] = (None, None)
        self._planned_steps: int | None = None
        self._phase = "starting"
        self._measured_span = ""

    def poll(self) -> Progress | None:
        """The new state, or None where nothing has changed."""
        new = [event for rank in self._ranks for event in rank.new_events()]
        for event in new:
            self._apply(event)
        self._cards.read()
        figures = self._cards.used_bytes, self._cards.power_watts
        if not new and figures == self._shown:
            return None
        self._shown = figures
        return self._progress()

    def _apply(self, event: AnyEvent) -> None:
        if isinstance(event, SpanBegan):
            self._planned_steps, self._phase, self._measured_span = event.planned_steps, event.name, event.name
        elif isinstance(event, SpanEnded) and event.name == self._measured_span:
            self._phase = "finishing"

    def _progress(self) -> Progress:
        last = self._ranks[0].last
        speeds = [speed for rank in self._ranks if (speed := rank.samples_per_second()) is not None]
        losses = [rank.last.loss for rank in self._ranks if rank.last and rank.last.loss is not None]
        used_bytes, power_watts = self._shown
        paces = self._paces()
        return Progress(
            step=last.step if last else 0,
            planned_steps=self._planned_steps,
            samples_per_second=sum(speeds) if speeds else None,
            loss=losses[0] if losses else None,
            used_bytes=used_bytes,
            seconds_left=self._seconds_left(),
            phase=self._phase,
            evaluation=self._ranks[0].evaluation,
            power_watts=power_watts,
            median_step_seconds=median(pace.step_seconds for pace in paces) if paces else None,
            slowest=max(paces, key=lambda pace: pace.step_seconds) if paces else None,
        )

    def _paces(self) -> list[RankPace]:
        """Over the same steps on every rank, because at any moment some have finished one more than others. Ranks that
        do not wait for each other may have no such steps any more: then over the last steps of each."""
        common = set(self._ranks[0].numbers).intersection(*(rank.numbers for rank in self._ranks[1:]))
        is_apart = not common and all(rank.last for rank in self._ranks)
        paces = [
            RankPace(number, seconds)
            for number, rank in enumerate(self._ranks, start=self._first_rank)
            if (seconds := rank.seconds_per_step(None if is_apart else common)) is not None
        ]
        return paces if len(paces) == len(self._ranks) else []

    def _seconds_left(self) -> float | None:
        first = self._ranks[0]
        seconds_per_step = first.seconds_per_step()
        if not (first.last and self._planned_steps and seconds_per_step and self._phase == self._measured_span):
            return None
        since_last = (time.monotonic_ns() - first.last.t_ns) / 1e9
        return max(0.0, (self._planned_steps - first.last.step) * seconds_per_step - since_last)
