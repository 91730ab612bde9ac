"""What the memory probe takes of a core beside a small tree of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from bench.measure import Figure, NotMeasured
from flagperf import version
from flagperf.api import Device
from flagperf.event_files import EventFile, read_events
from flagperf.events import ProbeEnded, Sampled
from flagperf.spec.protocol import ProbeRequest, hello_line

SECONDS, INTERVAL_SECONDS = 15.0, 1.0
LIMIT = 0.01

RANKS = (0, 1)
TREE = f"for rank in {' '.join(map(str, RANKS))}; do LOCAL_RANK=$rank sh -c 'sleep 90 & sleep 90 & wait' & done; wait"
"""A launcher, its ranks, and two children of each, as data loaders are."""


def measure() -> Iterator[Figure]:
    launcher = subprocess.Popen(["sh", "-c", TREE], start_new_session=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "node-000.jsonl"
            kernel_share = _probe(launcher.pid, path)
            record = read_events(path)
    finally:
        os.killpg(launcher.pid, signal.SIGTERM)
        launcher.wait()
    num_samples, ended = _check(record)
    share = ended.cpu_seconds / ended.wall_seconds
    how = (
        f"CPU over wall time as the probe records it, {num_samples} samples at {1 / INTERVAL_SECONDS:g} Hz of "
        f"{1 + 3 * len(RANKS)} processes, {len(psutil.pids())} on the machine; {kernel_share:.2%} by the kernel's count"
    )
    yield Figure("probe_cost", f"{share:.3%}", f"< {LIMIT:.0%}", share < LIMIT, how)


def _probe(launcher_pid: int, path: Path) -> float:
    """Let the real probe sample for a while; its share of a core as the kernel counts it, start-up left out."""
    devices = tuple(Device(f"cpu:{rank}", "CPU", "CPU", rank) for rank in RANKS)
    request = ProbeRequest("cpu", 0, devices, INTERVAL_SECONDS, str(path))
    command = [sys.executable, "-m", "flagperf.agent", "probe"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        assert probe.stdin is not None and probe.stdout is not None
        probe.stdin.write(hello_line(version()) + msgspec.json.encode(request) + b"\n")
        probe.stdin.flush()
        probe.stdout.readline()  # its hello
        if probe.stdout.readline() != b"ready\n":
            raise NotMeasured("the probe did not start")
        before, began = _cpu_seconds(probe.pid), time.monotonic()
        probe.stdin.write(b"%d\n" % launcher_pid)
        probe.stdin.flush()
        time.sleep(SECONDS)
        share = (_cpu_seconds(probe.pid) - before) / (time.monotonic() - began)
        probe.stdin.close()
    return share


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _check(record: EventFile) -> tuple[int, ProbeEnded]:
    """A probe that read nothing would be cheap."""
    samples = [event for event in record.events if isinstance(event, Sampled) and not event.baseline]
    ended = record.events[-1]
    read = [reading.used_bytes for sample in samples for reading in sample.readings]
    if len(samples) < SECONDS / INTERVAL_SECONDS - 1 or not all(read) or not isinstance(ended, ProbeEnded):
        raise NotMeasured(f"the probe read {read} in {len(samples)} samples and ended with {type(ended).__name__}")
    return len(samples), ended
