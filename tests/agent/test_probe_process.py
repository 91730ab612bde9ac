"""The agent beside a real probe process: what it writes down when the probe does not end as it should."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flagperf.agent import probe_process
from flagperf.agent.probe_process import ProbeProcess, running_probe
from flagperf.api import Device
from flagperf.event_files import read_events
from flagperf.events import ProbeEnded, ProbeFailed, ProbeStarted, Sampled
from flagperf.spec.protocol import ProbeRequest

NEVER = threading.Event()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends at all is waited for."""
    monkeypatch.setattr(probe_process, "READY_SECONDS", 600.0)
    monkeypatch.setattr(probe_process, "END_SECONDS", 600.0)


def request(folder: Path, vendor: str = "cpu") -> ProbeRequest:
    return ProbeRequest(vendor, 0, (Device("cpu:0", "CPU", "CPU", 0),), 1.0, str(folder / "node-000.jsonl"))


class Started:
    """A probe with its files."""

    def __init__(self, folder: Path, vendor: str = "cpu") -> None:
        self.samples = folder / "node-000.jsonl"
        self.probe = ProbeProcess(request(folder, vendor), folder / "probe-000.log", f"probe-of-{folder.name}")

    def signal(self, number: int) -> None:
        os.kill(self.probe.pid, number)

    def await_death(self) -> None:
        """As a zombie: the agent, which has not looked yet, is its parent."""
        process, deadline = psutil.Process(self.probe.pid), time.monotonic() + 600
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @property
    def failures(self) -> list[str]:
        return [event.reason for event in read_events(self.samples).events if isinstance(event, ProbeFailed)]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made = Started(tmp_path)
    made.probe.await_ready(NEVER)
    yield made
    made.probe.end()


def test_a_probe_that_ends_when_asked_has_not_failed(tmp_path: Path) -> None:
    with running_probe(request(tmp_path), tmp_path / "probe.log", "a/0/probe") as probe:
        probe.await_ready(NEVER)
        probe.poll()
    events = read_events(tmp_path / "node-000.jsonl").events
    assert [type(event) for event in events] == [ProbeStarted, Sampled, ProbeEnded]


def test_a_probe_that_is_killed_is_recorded_once_with_the_signal_and_its_half_line_is_cut_off(started: Started) -> None:
    started.probe.poll()
    started.signal(signal.SIGKILL)
    started.await_death()
    with started.samples.open("ab") as file:
        file.write(b'{"type":"sampled","t_ns":')
    started.probe.poll()
    started.probe.poll()
    why = "the probe ended early (killed by SIGKILL, often because the machine ran out of memory)"
    assert started.failures == [why]
    assert [type(event) for event in read_events(started.samples).events] == [ProbeStarted, Sampled, ProbeFailed]


def test_the_last_words_of_a_probe_stand_beside_its_exit_code(tmp_path: Path) -> None:
    started = Started(tmp_path, vendor="cpuu")  # which nobody made
    started.probe.await_ready(NEVER)
    started.probe.end()
    (reason,) = started.failures
    assert reason.startswith("the probe ended early (exit code 2): ") and "'cpuu'" in reason


def test_a_probe_that_does_not_get_ready_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_process, "READY_SECONDS", 0.1)
    monkeypatch.setattr(ProbeProcess, "_send", lambda *_: None)  # it waits for its request
    started = Started(tmp_path)
    started.probe.await_ready(NEVER)
    assert started.failures == ["the probe was not ready within 0.1 s"]
    started.probe.end()


def test_a_run_that_is_stopped_does_not_wait_for_its_probe(tmp_path: Path) -> None:
    stop, started = threading.Event(), Started(tmp_path)
    started.signal(signal.SIGSTOP)
    stop.set()
    started.probe.await_ready(stop)
    started.signal(signal.SIGCONT)
    started.probe.end()
    assert not started.failures


def test_a_probe_that_hangs_at_the_end_is_killed_and_recorded(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_process, "END_SECONDS", 0.1)
    started.signal(signal.SIGSTOP)
    started.probe.end()
    assert started.failures == ["the probe did not end within 0.1 s and was killed"]


def test_a_failure_that_cannot_be_written_among_the_samples_is_kept_for_the_parent(tmp_path: Path) -> None:
    (tmp_path / "node-000.jsonl").mkdir()
    started = Started(tmp_path)
    started.probe.await_ready(NEVER)
    started.probe.end()
    said = str(started.probe.unrecorded)
    assert said.startswith("the probe ended early (exit code 3): cannot write ")
    assert said.endswith("that could not be written among the samples: it is not a regular file")
