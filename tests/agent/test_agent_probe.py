"""The probe's own process, and what becomes of probes that misbehave."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from flagperf import version
from flagperf.agent.probe import choose_probe, declared, pause_seconds
from flagperf.api import FIGURES, Availability, Device, Machine, MemoryProbe, Reading
from flagperf.event_files import read_events
from flagperf.events import ProbeEnded, ProbeStarted, Sampled
from flagperf.spec.protocol import ProbeRequest, hello_line


class Probe(MemoryProbe):
    vendor = "acme"

    def __init__(self, name: str, answer: Availability | Exception) -> None:
        self.name = name  # type: ignore[misc]
        self.answer = answer

    def available(self, machine: Machine) -> Availability:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        return []


def test_the_first_available_probe_wins_and_the_reasons_before_it_are_kept() -> None:
    probes = [
        Probe("library", Availability(False, "libacme.so is not there")),
        Probe("broken", ValueError("no such symbol")),
        Probe("tool", Availability(True)),
        Probe("never", Availability(True)),
    ]
    choice = choose_probe(probes, Machine())
    assert choice.probe is probes[2]
    assert choice.not_used == {"library": "libacme.so is not there", "broken": "ValueError: no such symbol"}


def test_without_an_available_probe_there_is_none() -> None:
    choice = choose_probe([Probe("tool", Availability(False, "not found"))], Machine())
    assert choice.probe is None
    assert choice.not_used == {"tool": "not found"}


@pytest.mark.parametrize(
    ("cpu_seconds", "pause"),
    [(0.0, 1.0), (0.008, 1.0), (0.04, 5.0), (0.08, 10.0), (3.0, 10.0)],
)
def test_expensive_samples_are_taken_less_often_so_that_they_take_less_than_1_percent_of_a_core(
    cpu_seconds: float, pause: float
) -> None:
    assert pause_seconds(1.0, cpu_seconds) == pytest.approx(pause)


def request(path: Path, interval_seconds: float = 0.1) -> bytes:
    devices = (Device("cpu:0", "CPU", "CPU", 0),)
    order = ProbeRequest("cpu", 0, devices, interval_seconds, str(path))
    return hello_line(version()) + msgspec.json.encode(order) + b"\n"


def start_probe() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "flagperf.agent", "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def samples(path: Path) -> list[Sampled]:
    return [event for event in read_events(path).events if isinstance(event, Sampled)]


def test_the_process_takes_a_baseline_samples_and_says_what_it_cost(tmp_path: Path) -> None:
    path = tmp_path / "node-000.jsonl"
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], env={'LOCAL_RANK': '0'}).wait()",
        ],
    )
    try:
        probe = start_probe()
        assert probe.stdin and probe.stdout
        probe.stdin.write(request(path))
        probe.stdin.flush()
        assert probe.stdout.readline() == hello_line(version())
        assert probe.stdout.readline() == b"ready\n"
        probe.stdin.write(f"{worker.pid}\n".encode())
        probe.stdin.flush()
        while len(sampled := samples(path)) < 5 or (sampled[-1].readings[0].used_bytes or 0) <= 1 << 20:
            assert probe.poll() is None
            time.sleep(0.05)
        probe.stdin.close()
        assert probe.wait(600) == 0
    finally:
        subprocess.run(["pkill", "-P", str(worker.pid)], check=False)
        worker.kill()
        worker.wait()
    events = read_events(path).events
    assert isinstance(events[0], ProbeStarted) and events[0].interval_seconds == 0.1
    sampled = samples(path)
    assert [event.baseline for event in sampled] == [True] + [False] * (len(sampled) - 1)
    assert sampled[0].readings[0].used_bytes == 0
    assert isinstance(events[-1], ProbeEnded) and events[-1].cpu_seconds > 0


def test_a_probe_whose_workers_never_start_ends_with_its_stdin(tmp_path: Path) -> None:
    probe = start_probe()
    probe.communicate(request(tmp_path / "node.jsonl"), timeout=600)
    assert probe.returncode == 0
    assert isinstance(read_events(tmp_path / "node.jsonl").events[-1], ProbeEnded)


def test_a_figure_that_a_probe_does_not_declare_is_unsupported_whatever_it_gives() -> None:
    class Modest(MemoryProbe):
        vendor, name, figures = "acme", "modest", ("used_bytes", "total_bytes")

        def available(self, machine: Machine) -> Availability:
            return Availability(True)

        def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
            return []

    reading = declared(Reading("GPU-0", 1, 2, utilisation_percent=50.0, power_watts=7.0), Modest())
    assert (reading.used_bytes, reading.total_bytes) == (1, 2)
    assert (reading.utilisation_percent, reading.power_watts, reading.temperature_celsius) == (None, None, None)
    assert set(reading.missing.values()) == {"unsupported"} and len(reading.missing) == 3


def test_energy_clock_and_throttling_count_only_where_a_probe_declares_them_and_need_no_reason() -> None:
    class Plain(MemoryProbe):
        vendor, name = "acme", "plain"

        def available(self, machine: Machine) -> Availability:
            return Availability(True)

        def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
            return []

    class Full(Plain):
        figures = FIGURES

    reading = Reading("GPU-0", 1, 2, 50.0, 7.0, 40.0, energy_joules=9.5, clock_mhz=1410.0, throttle_reasons=())
    assert declared(reading, Full()) == reading
    assert declared(reading, Plain()) == Reading("GPU-0", 1, 2, 50.0, 7.0, 40.0)
