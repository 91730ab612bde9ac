"""The vendor that every machine has, and the usual ways to reach nodes. Written as an outside plugin would be.

Each hook imports what it gives: a process loads only what it asks for.
"""

from __future__ import annotations

from flagperf.api import Cluster, DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    from flagperf.builtin.cpu import CpuBackend

    return [CpuBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    from flagperf.builtin.cpu import ProportionalMemoryProbe, ResidentMemoryProbe

    return [ProportionalMemoryProbe(), ResidentMemoryProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    from flagperf.builtin.cpu import CpuLauncher

    return [CpuLauncher()]


@hookimpl
def flagperf_clusters() -> list[Cluster]:
    from flagperf.builtin.slurm import SlurmCluster
    from flagperf.builtin.ssh import LocalCluster, SshCluster

    return [LocalCluster(), SshCluster(), SlurmCluster()]
