"""CPU affinity: binds a rank to the CPUs close to its card (Device.near_cpus)."""

from __future__ import annotations

import os

from flagperf.kit import read_cpu_list, write_cpu_list


def bind_to_cpus(cpus: str) -> None:
    """Call before torch is imported, so that its threads inherit the affinity. An empty string changes nothing."""
    if cpus:
        os.sched_setaffinity(0, read_cpu_list(cpus))


def bound_cpus() -> str:
    """The CPUs that this rank may use, for the record."""
    return write_cpu_list(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""
