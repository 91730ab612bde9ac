"""A probe that cannot read memory says why, and one that does not see it move holds nothing up."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flagperf.api import Reading
from flagperf.event_files import EventWriter, this_clock
from flagperf.events import EVENT_SCHEMA, Clock, Event, Sampled, SampleMissed, StepFinished, WorkerStarted
from flagperf.testing import MovingMemory, SimulatedCard, Simulation, memory_suite

STEPS = [StepFinished(number, number, 0, 1, 0, {}) for number in range(3)]
CARDS = tuple(SimulatedCard(f"GPU-{index}", 64 << 30) for index in range(2))


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def write(path: Path, *events: Event) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with EventWriter(path) as writer:
        for event in events:
            writer.write(event)


def started(pid: int) -> WorkerStarted:
    here = this_clock()
    clock = Clock(here.host, here.boot_id, pid, here.wall)
    return WorkerStarted(1, EVENT_SCHEMA, clock, 0, 0, 0, 1, "GPU-0", "uuid", "synchronize")


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (lambda t_ns: Sampled(t_ns, (Reading("GPU-1", 4096),)), "the probe says: 4096"),
        (lambda t_ns: Sampled(t_ns, (Reading("GPU-1", missing={"used_bytes": "N/A"}),)), "the probe says: N/A"),
        (lambda t_ns: SampleMissed(t_ns, "the driver is gone"), "the probe says: the driver is gone"),
    ],
)
def test_after_a_few_samples_without_the_peak_the_workers_go_on(
    worker: subprocess.Popen[bytes], sample: Callable[[int], Event], said: str, tmp_path: Path
) -> None:
    simulation = Simulation(tmp_path, CARDS, tmp_path / "memory", {})
    run = tmp_path / "runs" / "one"
    write(run / "events" / "rank-00000.jsonl", started(worker.pid), *STEPS)
    later_ns = time.monotonic_ns() + 3600 * 10**9
    write(run / "samples" / "node-000.jsonl", *(sample(later_ns + index) for index in range(3)))
    with MovingMemory(simulation, tmp_path / "runs", card=1) as moving:
        moving._thread.join(30)
        assert not moving._thread.is_alive()
    assert moving.shown_ns is None and said in moving.problem
    assert psutil.Process(worker.pid).status() != psutil.STATUS_STOPPED


class Probe:
    def ask(self, *_: Any) -> dict[str, Any]:
        unlisted = {"device_id": "a", "missing": {"used_bytes": "the tool did not list this card"}}
        return {"readings": [unlisted, {"device_id": "b"}]}


@pytest.mark.parametrize(
    ("card", "cause"),
    [("a", "no used_bytes of a: the tool did not list this card"), ("b", "no used_bytes of b: without a reason")],
)
def test_memory_that_cannot_be_read_is_told_with_its_cause(card: str, cause: str) -> None:
    with pytest.raises(AssertionError, match=cause):
        memory_suite._used(Probe(), card)  # type: ignore[arg-type]
