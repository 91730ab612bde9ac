"""CPUs on a card's side of the machine: a worker that runs elsewhere reaches its card through the other socket."""

from __future__ import annotations

import os

from flagperf.api.machine import Machine


def near_cpus(machine: Machine, pci_address: str) -> str:
    """The allowed CPUs near a card, as a list like `0-31,64-95`; "" where sysfs does not say or none is allowed."""
    listed = machine.read(f"/sys/bus/pci/devices/{pci_address}/local_cpulist") if pci_address else None
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    return write_cpu_list(read_cpu_list(listed or "") & allowed)


def read_cpu_list(text: str) -> set[int]:
    """`0-2,5` is {0, 1, 2, 5}; a text of another form gives no CPUs."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or "0").isdigit():
            return set()
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def write_cpu_list(cpus: set[int]) -> str:
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], cpu]
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)
