"""How busy the cores are that a run may use, and how much of that the run itself uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import psutil

from flagperf.api import Machine
from flagperf.events import CpuUse
from flagperf.kit import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6, 7)
"""Of a cpu line of /proc/stat: user (guests included), nice, system, irq, softirq, steal; not idle, not iowait."""


def cpu_use(launcher_pid: int, machine: Machine) -> CpuUse | None:
    """Seconds since an arbitrary start, to be subtracted from a later answer. None where the kernel does not say, and
    once the launcher has ended: its and its children's use is no longer known."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    all_seconds = busy_seconds(machine.read("/proc/stat") or "", cores)
    try:
        own_seconds = _cpu_seconds(launcher_pid)
        relatives = [os.getpid(), os.getppid(), *descendants(launcher_pid)]
    except psutil.NoSuchProcess:
        return None
    if all_seconds is None:
        return None
    for pid in relatives:
        with contextlib.suppress(psutil.NoSuchProcess):
            own_seconds += _cpu_seconds(pid)
    return CpuUse(cores=len(cores), all_seconds=all_seconds, own_seconds=own_seconds)


def busy_seconds(stat: str, cores: Iterable[int]) -> float | None:
    """Of all processes on these cores."""
    lines = {
        words[0]: words[1:] for line in stat.splitlines() if (words := line.split()) and words[0].startswith("cpu")
    }
    found = [lines.get(f"cpu{core}", []) for core in cores]
    if not found or any(len(line) <= max(_BUSY) for line in found):
        return None
    return sum(int(line[column]) for line in found for column in _BUSY) / _TICKS


def _cpu_seconds(pid: int) -> float:
    """Of a process and of its children that have ended: what they used becomes its own when they are waited for."""
    return float(sum(psutil.Process(pid).cpu_times()[:4]))
