"""Acme cards, as a vendor would ship them. ACME_STATE says what this machine has of them; see device.py."""

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl
from flagperf_acme.device import AcmeBackend
from flagperf_acme.launcher import AcmeLauncher
from flagperf_acme.memory import AcmeSmiProbe, AcmeSysfsProbe

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    return [AcmeBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    return [AcmeSmiProbe(), AcmeSysfsProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    return [AcmeLauncher()]
