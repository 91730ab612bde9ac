"""`agent probe`: samples memory in a process of its own, so that it costs the workers nothing but its CPU time.

It reads a ProbeRequest, takes the baseline, prints `ready`, reads the launcher's pid, then samples until stdin ends.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec
import psutil

from flagperf.agent.leftovers import set_when_closed
from flagperf.agent.node_environment import node_machine
from flagperf.api import FIGURES, Availability, Machine, MemoryProbe, ProcessReading, Reading
from flagperf.errors import BundleFailed, PluginFailed, Unsupported
from flagperf.event_files import EventWriter, this_clock
from flagperf.events import (
    EVENT_SCHEMA,
    CpuUse,
    ProbeEnded,
    ProbeFailed,
    ProbeStarted,
    ProcessesListed,
    Sampled,
    SampleMissed,
)
from flagperf.kit import descendants
from flagperf.messages import Message, message
from flagperf.plugins.installed import load_plugins
from flagperf.plugins.loading import typed
from flagperf.processes import die_with_parent
from flagperf.spec.protocol import ProbeRequest

MAX_COST = 0.008
"""Share of a core that sampling may take, so that the whole probe stays below 1 %: after an expensive sample the pause
is longer."""

MAX_STRETCH = 10
"""Intervals; no pause is longer, whatever a sample costs."""

_TICKS = os.sysconf("SC_CLK_TCK")

_BUSY = (0, 1, 2, 5, 6, 7)
"""Columns of a cpu line of /proc/stat: user (guests included), nice, system, irq, softirq, steal; not idle, iowait."""


def cpu_use(launcher_pid: int, machine: Machine) -> CpuUse | None:
    """Return how busy the cores are that a run may use, and how much of that the run itself uses: seconds since an
    arbitrary start, to be subtracted from a later answer. Return None where the kernel does not say, and once the
    launcher has ended: its and its children's use is no longer known."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    all_seconds = busy_seconds(machine.read("/proc/stat") or "", cores)
    try:
        own_seconds = _process_cpu_seconds(launcher_pid)
        relatives = [os.getpid(), os.getppid(), *descendants(launcher_pid)]
    except psutil.NoSuchProcess:
        return None
    if all_seconds is None:
        return None
    for pid in relatives:
        with contextlib.suppress(psutil.NoSuchProcess):
            own_seconds += _process_cpu_seconds(pid)
    return CpuUse(cores=len(cores), all_seconds=all_seconds, own_seconds=own_seconds)


def busy_seconds(stat: str, cores: Iterable[int]) -> float | None:
    """Return the seconds of all processes on these cores, or None where the kernel does not say."""
    lines = {
        words[0]: words[1:] for line in stat.splitlines() if (words := line.split()) and words[0].startswith("cpu")
    }
    found = [lines.get(f"cpu{core}", []) for core in cores]
    if not found or any(len(line) <= max(_BUSY) for line in found):
        return None
    return sum(int(line[column]) for line in found for column in _BUSY) / _TICKS


def _process_cpu_seconds(pid: int) -> float:
    """Return the seconds of a process and of its children that have ended: they become its own once awaited."""
    return float(sum(psutil.Process(pid).cpu_times()[:4]))


class ProbeChoice(msgspec.Struct, frozen=True):
    probe: MemoryProbe | None
    not_used: dict[str, str]
    """Name -> reason, of those that come before it."""


def choose_probe(probes: Sequence[MemoryProbe], machine: Machine) -> ProbeChoice:
    """Return the first available probe in the vendor's order, and why the ones before it are not used."""
    reasons: dict[str, str] = {}
    for probe in probes:
        try:
            availability = typed(probe.available(machine), Availability)
        except BaseException as error:  # noqa: BLE001  a plugin boundary: becomes this probe's reason
            reasons[probe.name] = f"{type(error).__name__}: {error}"
            continue
        if availability.available:
            return ProbeChoice(probe, reasons)
        reasons[probe.name] = availability.reason
    return ProbeChoice(None, reasons)


def main(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    die_with_parent(signal.SIGKILL)  # it may be stuck in a call of the vendor's library when the agent is killed
    request = msgspec.json.decode(stdin.readline(), type=ProbeRequest)
    try:
        probes = load_plugins(request.plugins).memory_probes(request.vendor)
    except PluginFailed as error:
        return _give_up(request, message("tool.words", words=str(error)))
    choice = choose_probe(probes, node_machine())
    if choice.probe is None:
        listed = [f"{name}: {reason}" for name, reason in choice.not_used.items()]
        none_available = message("probe.none_available", vendor=request.vendor, reasons=listed)
        return _give_up(request, none_available if listed else message("probe.none", vendor=request.vendor))
    interval = max(request.interval_seconds, choice.probe.minimum_interval_seconds)
    with _writing(request), EventWriter(Path(request.path)) as writer:
        writer.write(
            ProbeStarted(
                t_ns=time.monotonic_ns(),
                schema=EVENT_SCHEMA,
                clock=this_clock(),
                node_index=request.node_index,
                vendor=request.vendor,
                probe=choice.probe.name,
                interval_seconds=interval,
                not_used=choice.not_used,
                board_figures=choice.probe.board_figures,
            )
        )
        began, began_cpu = time.monotonic(), _cpu_seconds()
        _sample(choice.probe, request, None, writer, baseline=True)
        _list_processes(choice.probe, request, writer)
        stdout.write(b"ready\n")
        stdout.flush()
        line = stdin.readline()
        if line.strip():
            launcher_pid, closed, due = int(line), set_when_closed(stdin), time.monotonic()
            while not closed.wait(max(0.0, due - time.monotonic())):
                sample_began = time.process_time()  # without a vendor's tool: minimum_interval_seconds limits that
                _sample(choice.probe, request, launcher_pid, writer)
                due = max(due + pause_seconds(interval, time.process_time() - sample_began), time.monotonic())
        _list_processes(choice.probe, request, writer)
        try:
            choice.probe.close()
        except BaseException as error:  # noqa: BLE001  a plugin boundary: by now every figure is written
            print(f"close: {type(error).__name__}: {error}", file=sys.stderr)
        cpu_seconds, wall_seconds = _cpu_seconds() - began_cpu, time.monotonic() - began
        writer.end(ProbeEnded(time.monotonic_ns(), cpu_seconds=cpu_seconds, wall_seconds=wall_seconds))
    return 0


@contextlib.contextmanager
def _writing(request: ProbeRequest) -> Iterator[None]:
    """Raise BundleFailed where the file cannot be written. The agent reports the last line that the probe prints."""
    try:
        yield
    except OSError as error:
        raise BundleFailed(f"cannot write {request.path}: {error.strerror}") from None


def _give_up(request: ProbeRequest, why: Message) -> int:
    with _writing(request), EventWriter(Path(request.path)) as writer:
        writer.write(ProbeFailed(time.monotonic_ns(), str(why), why))
    print(why, file=sys.stderr)
    return Unsupported.exit_code


def pause_seconds(interval: float, sample_cpu_seconds: float) -> float:
    """Return the time from one sample to the next: the interval, or longer where sampling is expensive."""
    return min(max(interval, sample_cpu_seconds / MAX_COST), MAX_STRETCH * interval)


def _cpu_seconds() -> float:
    """Return the seconds of this process and of the tools that it ran."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _list_processes(probe: MemoryProbe, request: ProbeRequest, writer: EventWriter) -> None:
    """Record who else is on the cards. Only at the start and at the end: it costs more than a sample."""
    try:
        processes = typed(probe.processes(request.devices), tuple[ProcessReading, ...])
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        writer.write(ProcessesListed(time.monotonic_ns(), (), problem=f"{type(error).__name__}: {error}"))
        return
    if processes:
        writer.write(ProcessesListed(time.monotonic_ns(), processes))


def declared(reading: Reading, probe: MemoryProbe) -> Reading:
    """Return the figures that the probe declares. Any other is unsupported, whatever number came with it."""
    undeclared = [figure for figure in FIGURES if figure not in probe.figures]
    unsupported = [figure for figure in undeclared if figure in MemoryProbe.figures]  # others need no reason
    missing = {**reading.missing, **dict.fromkeys(unsupported, "unsupported")}
    return msgspec.structs.replace(reading, **dict.fromkeys(undeclared), missing=missing)


def _sample(
    probe: MemoryProbe, request: ProbeRequest, launcher_pid: int | None, writer: EventWriter, baseline: bool = False
) -> None:
    """Record a sample. Record one that fails as a gap: it never stops a run."""
    try:
        given = typed(probe.sample(request.devices, launcher_pid), tuple[Reading, ...])
        readings = tuple(declared(reading, probe) for reading in given)
    except BaseException as error:  # noqa: BLE001  a plugin boundary
        writer.write(SampleMissed(time.monotonic_ns(), f"{type(error).__name__}: {error}"))
        print(f"sample missed: {type(error).__name__}: {error}", file=sys.stderr)
        return
    cpu = None if launcher_pid is None else cpu_use(launcher_pid, node_machine())
    writer.write(Sampled(time.monotonic_ns(), readings, baseline=baseline, cpu=cpu))
