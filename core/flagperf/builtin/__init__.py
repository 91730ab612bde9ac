"""The vendor that every machine has, and the site of one machine. Written as an outside plugin would be."""

from flagperf.api import Cluster, DeviceBackend, Launcher, MemoryProbe
from flagperf.builtin.cpu import CpuBackend, CpuLauncher
from flagperf.builtin.host_memory import HostMemoryProbe
from flagperf.builtin.local import LocalCluster
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    return [CpuBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    return [HostMemoryProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    return [CpuLauncher()]


@hookimpl
def flagperf_clusters() -> list[Cluster]:
    return [LocalCluster()]
