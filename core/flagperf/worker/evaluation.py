"""Evaluation: reports the progress of an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from flagperf.events import EvaluationAdvanced, Event


class EventSink(Protocol):
    def write(self, *events: Event) -> None: ...


class Evaluation:
    """A running evaluation. Reports progress at most once per second and never synchronises the device."""

    def __init__(
        self, sink: EventSink, clock: Callable[[], int], pause_ns: int, planned_rows: int | None, world_size: int
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._pause_ns = pause_ns
        self._planned_rows = planned_rows
        self._world_size = world_size
        self._rows = 0
        self._began_ns = self._said_ns = clock()

    def done(self, rows: int) -> None:
        """Report that this rank has evaluated `rows` more rows."""
        self._rows += rows
        now_ns = self._clock()
        if self._planned_rows is not None and now_ns - self._said_ns > self._pause_ns:
            self._said_ns = now_ns
            rows_of_all = min(self._rows * self._world_size, self._planned_rows)
            self._sink.write(EvaluationAdvanced(now_ns, self._began_ns, rows_of_all, self._planned_rows))
