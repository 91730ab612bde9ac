"""NVIDIA cards for flagperf. Each hook imports what it gives: a process loads only what it asks for."""

from __future__ import annotations

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    from flagperf_nvidia.device import NvidiaBackend

    return [NvidiaBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    from flagperf_nvidia.memory import NvidiaSmiProbe, NvmlProbe

    return [NvmlProbe(), NvidiaSmiProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    from flagperf_nvidia.launcher import NvidiaLauncher

    return [NvidiaLauncher()]
