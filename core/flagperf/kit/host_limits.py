"""Limits of this process on the machine: the affinity mask and the control group's limits, version 1 or 2."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from flagperf.api.machine import Machine

_UNLIMITED = 1 << 60
"""Version 1 writes a huge number for `no limit`."""


def allowed_cores(machine: Machine) -> int:
    """Return the number of cores of the affinity mask, less where a control group's quota is smaller; at least 1."""
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for folder in _group_folders(machine, "cpu"):
        quota, period = (machine.read(f"{folder}/cpu.max") or "max 0").split()[:2]
        if quota == "max":
            quota = machine.read(f"{folder}/cpu.cfs_quota_us") or "-1"
            period = machine.read(f"{folder}/cpu.cfs_period_us") or "0"
        if int(quota) > 0 and int(period) > 0:
            limits.append(math.ceil(int(quota) / int(period)))
    return max(1, min(limits))


def memory_limit_bytes(machine: Machine) -> int:
    """Return the machine's memory, or the smallest limit of a control group around this process."""
    return min([_machine_memory_bytes(machine), *dict(_memory_limits(machine)).values()])


def memory_used_bytes(machine: Machine) -> int | None:
    """Return what all processes use now, as counted where the limit is: in that control group, or on the machine."""
    limits = dict(_memory_limits(machine))
    smallest = min(limits, key=lambda folder: limits[folder], default=None)
    if smallest is not None and limits[smallest] < _machine_memory_bytes(machine):
        for name in ("memory.current", "memory.usage_in_bytes"):
            text = machine.read(f"{smallest}/{name}")
            if text and text.isdigit():
                return int(text)
    available = _meminfo_bytes(machine, "MemAvailable")
    return None if available is None else _machine_memory_bytes(machine) - available


def oom_kills(machine: Machine) -> int | None:
    """Return how many processes of this control group the kernel has killed for lack of memory, or None if it does not
    count them. Groups around this one are left out: they count strangers too."""
    for folder in _group_folders(machine, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            for line in (machine.read(f"{folder}/{name}") or "").splitlines():
                counter, _, count = line.partition(" ")
                if counter == "oom_kill" and count.isdigit():
                    return int(count)
    return None


def _machine_memory_bytes(machine: Machine) -> int:
    total = _meminfo_bytes(machine, "MemTotal")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if total is None else total


def _meminfo_bytes(machine: Machine, field: str) -> int | None:
    for line in (machine.read("/proc/meminfo") or "").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def _memory_limits(machine: Machine) -> Iterator[tuple[str, int]]:
    """Yield the folder of each group that has a limit, with the limit."""
    for folder in _group_folders(machine, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = machine.read(f"{folder}/{name}")
            if text and text.isdigit() and 0 < int(text) < _UNLIMITED:
                yield folder, int(text)


def _group_folders(machine: Machine, controller: str) -> Iterator[str]:
    """Yield this process's group and its ancestors, of both versions. Inside a container the group may be mounted as
    root."""
    for line in (machine.read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = f"/sys/fs/cgroup/{controller}" if controllers else "/sys/fs/cgroup"
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            yield "/".join([mount, *parts[:depth]])
