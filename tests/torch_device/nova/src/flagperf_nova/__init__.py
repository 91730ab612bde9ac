"""Nova cards, whose torch device is out of tree: a type that neither torch nor accelerate knows by itself."""

from flagperf.api import DeviceBackend, Launcher, MemoryProbe
from flagperf.hookspecs import hookimpl
from flagperf_nova.device import NovaBackend
from flagperf_nova.launcher import NovaLauncher
from flagperf_nova.memory import NovaProbe

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    return [NovaBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    return [NovaProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    return [NovaLauncher()]
