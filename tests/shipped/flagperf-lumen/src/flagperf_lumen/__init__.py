"""Lumen cards for flagperf. Each hook imports what it gives: a process loads only what it asks for."""

from __future__ import annotations

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    from flagperf_lumen.device import LumenBackend

    return [LumenBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    from flagperf_lumen.memory import LumenSmiProbe

    return [LumenSmiProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    from flagperf_lumen.launcher import LumenLauncher

    return [LumenLauncher()]
