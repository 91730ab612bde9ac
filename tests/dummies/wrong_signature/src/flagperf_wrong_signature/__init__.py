"""Asks for an argument that the contract does not have."""

from flagperf.api import DeviceBackend
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices(machine: object) -> list[DeviceBackend]:
    return []
