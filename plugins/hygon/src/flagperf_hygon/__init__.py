"""Hygon cards (DCU, newer name HCU) for flagperf. Each hook imports what it gives."""

from __future__ import annotations

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    from flagperf_hygon.device import HygonBackend

    return [HygonBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    from flagperf_hygon.memory import HygonSmiProbe, HygonTableProbe, HygonTextProbe

    return [HygonSmiProbe(), HygonTextProbe(), HygonTableProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    from flagperf_hygon.launcher import HygonLauncher

    return [HygonLauncher()]
