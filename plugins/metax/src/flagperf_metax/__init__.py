"""MetaX cards (C500, C550, ...). Each hook imports what it gives: a process loads only what it asks for."""

from __future__ import annotations

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    from flagperf_metax.device import MetaxBackend

    return [MetaxBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    from flagperf_metax.memory import MxSmiProbe, MxSmiTableProbe

    return [MxSmiProbe(), MxSmiTableProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    from flagperf_metax.launcher import MetaxLauncher

    return [MetaxLauncher()]
