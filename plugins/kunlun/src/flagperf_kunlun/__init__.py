"""Kunlunxin cards (K, R and P series) for flagperf. Each hook imports what it gives."""

from __future__ import annotations

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    from flagperf_kunlun.device import KunlunBackend

    return [KunlunBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    from flagperf_kunlun.memory import KunlunSmiProbe, KunlunTableProbe

    return [KunlunSmiProbe(), KunlunTableProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    from flagperf_kunlun.launcher import KunlunLauncher

    return [KunlunLauncher()]
