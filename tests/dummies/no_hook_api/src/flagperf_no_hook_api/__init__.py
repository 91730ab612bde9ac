"""Does not say which contract it was written for."""

from flagperf.api import DeviceBackend
from flagperf.hookspecs import hookimpl


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    raise SystemExit("a plugin without a HOOK_API was called")
