"""Memory of simulated cards that rises in the middle of a run, whatever the speed of the machine.

A thread beside the run: when rank 0 has finished some steps, one card's use goes up, stays until the probe has written
a sample with it, and goes down again. The workers stand still meanwhile: where the vendor's tool bears few samples, a
run of a few seconds would be over before the next one. A probe that does not see it does not hold them up for long.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flagperf.events import Sampled, SampleMissed, StepFinished, WorkerStarted, read_events
from flagperf.testing.rig import Simulation
from flagperf.units import SECOND_NS

ENOUGH_SAMPLES = 3
"""The first of them may have been under way when the memory rose."""

PATIENCE_SECONDS = 60.0
"""For a probe that writes nothing at all."""


class MovingMemory:
    """with MovingMemory(simulation, runs_dir, card=1) as moving: run it; then see `peak_bytes` and `shown_ns`, or why
    the peak was not seen in `problem`."""

    def __init__(self, simulation: Simulation, runs_dir: Path, card: int, after_steps: int = 3) -> None:
        self._simulation, self._runs_dir, self._after_steps = simulation, runs_dir, after_steps
        self.device_id = simulation.cards[card].id
        self.idle_bytes = [(256 + 64 * index) << 20 for index in range(len(simulation.cards))]
        self.peak_bytes = simulation.cards[card].memory_bytes * 3 // 4 >> 20 << 20
        self._peak = [*self.idle_bytes[:card], self.peak_bytes, *self.idle_bytes[card + 1 :]]
        self.shown_ns: tuple[int, int] | None = None
        """From when to when the card showed its peak."""
        self.problem = "the run ended before it had trained for a few steps"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._move, daemon=True)

    def __enter__(self) -> MovingMemory:
        self._simulation.use(*self.idle_bytes)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _move(self) -> None:
        if not self._wait_until(self._has_trained):
            return
        began_ns = time.monotonic_ns()
        self._simulation.use(*self._peak)
        with self._workers_stopped():
            if self._wait_until(lambda: self._was_sampled() or self._is_overdue(began_ns)) and self._was_sampled():
                self.shown_ns = began_ns, time.monotonic_ns()
            self.problem = f"{self.device_id} uses {self.peak_bytes} bytes, but the probe says: {self._last_words()}"
            self._simulation.use(*self.idle_bytes)

    @contextlib.contextmanager
    def _workers_stopped(self) -> Iterator[None]:
        files = [read_events(path) for path in self._runs_dir.glob("*/events/rank-*.jsonl")]
        pids = [event.clock.pid for file in files for event in file.events if isinstance(event, WorkerStarted)]
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        while not self._stop.wait(0.05):
            if condition():
                return True
        return False

    def _has_trained(self) -> bool:
        files = list(self._runs_dir.glob("*/events/rank-00000.jsonl"))
        steps = [event for path in files for event in read_events(path).events if isinstance(event, StepFinished)]
        return len(steps) >= self._after_steps

    def _samples(self) -> list[Sampled | SampleMissed]:
        files = [read_events(path) for path in self._runs_dir.glob("*/samples/*.jsonl")]
        return [event for file in files for event in file.events if isinstance(event, Sampled | SampleMissed)]

    def _was_sampled(self) -> bool:
        return any(
            (reading.used_bytes or 0) >= self.peak_bytes  # the workers' own use comes on top
            for event in self._samples()
            if isinstance(event, Sampled)
            for reading in event.readings
            if reading.device_id == self.device_id
        )

    def _is_overdue(self, since_ns: int) -> bool:
        num_since = sum(event.t_ns > since_ns for event in self._samples())
        return num_since >= ENOUGH_SAMPLES or time.monotonic_ns() - since_ns > PATIENCE_SECONDS * SECOND_NS

    def _last_words(self) -> str:
        for event in reversed(self._samples()):
            if isinstance(event, SampleMissed):
                return event.reason
            for reading in event.readings:
                if reading.device_id == self.device_id:
                    return str(reading.missing.get("used_bytes", reading.used_bytes))
        return "nothing"


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
