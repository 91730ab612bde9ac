"""A rank runs on the CPUs of its card's side of the machine."""

from __future__ import annotations

import os

from flagperf.kit import read_cpu_list, write_cpu_list


def bind_to_cpus(cpus: str) -> None:
    """Before torch is imported, so that its threads inherit it. "" leaves the rank where it is."""
    if cpus:
        os.sched_setaffinity(0, read_cpu_list(cpus))


def bound_cpus() -> str:
    """Where this rank may run, for the record."""
    return write_cpu_list(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ""
