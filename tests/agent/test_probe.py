"""The probe's own process, the CPU time that it reads, and what becomes of probes that misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from flagperf import version
from flagperf.agent.probe import busy_seconds, choose_probe, cpu_use, declared, pause_seconds
from flagperf.api import FIGURES, Availability, Device, Machine, MemoryProbe, Reading
from flagperf.event_files import read_events
from flagperf.events import ProbeEnded, ProbeStarted, Sampled
from flagperf.spec.protocol import ProbeRequest, hello_line


class Probe(MemoryProbe):
    vendor = "acme"

    def __init__(self, name: str, answer: Availability | Exception, figures: tuple[str, ...] = ()) -> None:
        self.name = name  # type: ignore[misc]
        self.answer, self.figures = answer, figures or MemoryProbe.figures  # type: ignore[misc]

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
    assert choose_probe(probes[:1], Machine()).probe is None


@pytest.mark.parametrize(("cpu_seconds", "pause"), [(0.0, 1.0), (0.008, 1.0), (0.04, 5.0), (0.08, 10.0), (3.0, 10.0)])
def test_expensive_samples_are_taken_less_often_so_that_they_take_less_than_1_percent_of_a_core(
    cpu_seconds: float, pause: float
) -> None:
    assert pause_seconds(1.0, cpu_seconds) == pytest.approx(pause)


def request(path: Path, interval_seconds: float = 0.1) -> bytes:
    devices = (Device("cpu:0", "CPU", "CPU", 0),)
    order = ProbeRequest("cpu", 0, devices, interval_seconds, str(path))
    return hello_line(version()) + msgspec.json.encode(order) + b"\n"


def start_probe() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "flagperf.agent", "probe"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def samples(path: Path) -> list[Sampled]:
    return [event for event in read_events(path).events if isinstance(event, Sampled)]


def test_the_process_takes_a_baseline_samples_and_says_what_it_cost(tmp_path: Path) -> None:
    path = tmp_path / "node-000.jsonl"
    probe = start_probe()
    assert probe.stdin and probe.stdout
    probe.stdin.write(request(path))
    probe.stdin.flush()
    assert probe.stdout.readline() == hello_line(version())
    assert probe.stdout.readline() == b"ready\n"
    # A worker that is its own launcher.
    with subprocess.Popen([sys.executable, "-c", "input()"], env={"LOCAL_RANK": "0"}, stdin=subprocess.PIPE) as worker:
        probe.stdin.write(f"{worker.pid}\n".encode())
        probe.stdin.flush()
        while len(sampled := samples(path)) < 5 or (sampled[-1].readings[0].used_bytes or 0) <= 1 << 20:
            assert probe.poll() is None
            time.sleep(0.05)
        probe.stdin.close()
        assert probe.wait(600) == 0
        worker.communicate(b"\n")
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


def test_a_figure_counts_only_where_the_probe_declares_it() -> None:
    """Only those that every probe should have need a reason."""
    yes = Availability(True)
    reading = Reading("GPU-0", 1, 2, 50.0, 7.0, 40.0, energy_joules=9.5, clock_mhz=1410.0, throttle_reasons=())
    assert declared(reading, Probe("full", yes, FIGURES)) == reading
    assert declared(reading, Probe("plain", yes)) == Reading("GPU-0", 1, 2, 50.0, 7.0, 40.0)
    modest = declared(reading, Probe("modest", yes, ("used_bytes", "total_bytes")))
    assert (modest.used_bytes, modest.total_bytes) == (1, 2)
    assert (modest.utilisation_percent, modest.power_watts, modest.temperature_celsius) == (None, None, None)
    assert set(modest.missing.values()) == {"unsupported"} and len(modest.missing) == 3


# --- CPU time ---------------------------------------------------------------------------------------------------------

TICKS = os.sysconf("SC_CLK_TCK")

# user nice system idle iowait irq softirq steal guest guest_nice
STAT = "cpu  99 99\ncpu0 100 20 30 4000 500 6 7 8 90 0\ncpu1 1 1 1 9 9 1 1 1 0 0\ncpu2 1000 0 0 0 0 0 0 0 0 0\nintr 5\n"


@pytest.mark.parametrize(
    ("stat", "cores", "ticks"),
    [
        (STAT, [0], 100 + 20 + 30 + 6 + 7 + 8),  # idle and waiting are not busy; guests are in user already
        (STAT, [0, 1], 171 + 6),
        ("", [0], None),
        ("cpu 1 2 3 4 5 6 7 8\n", [0], None),
        ("cpu0 1 2 3\n", [0], None),
    ],
)
def test_the_cores_that_a_run_may_use_are_busy_by_the_kernels_text(
    stat: str, cores: list[int], ticks: int | None
) -> None:
    assert busy_seconds(stat, cores) == (None if ticks is None else pytest.approx(ticks / TICKS))


# Its child computes for half a second and ends when it is told to; both say when they are so far.
LAUNCHER = """
import subprocess, sys
CHILD = "import time\\nwhile time.process_time() < 0.5: pass\\nprint('computed', flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
print("waited", flush=True)
input()
"""


def test_own_seconds_hold_what_children_used_also_after_their_end() -> None:
    before = cpu_use(os.getpid(), Machine())
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert launcher.stdin and launcher.stdout
    assert launcher.stdout.readline() == b"computed\n"
    running = cpu_use(launcher.pid, Machine())
    launcher.stdin.write(b"\n")
    launcher.stdin.flush()
    assert launcher.stdout.readline() == b"waited\n"
    ended = cpu_use(launcher.pid, Machine())
    launcher.communicate(b"\n")
    assert before is not None and running is not None and ended is not None
    assert running.cores == len(os.sched_getaffinity(0))
    assert 0.4 < running.own_seconds <= ended.own_seconds + 0.1
    assert running.all_seconds - before.all_seconds > 0.1
    assert cpu_use(launcher.pid, Machine()) is None  # it has ended
