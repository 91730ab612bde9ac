"""Written for a contract of the future."""

from flagperf.api import DeviceBackend
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 99


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    raise SystemExit("a plugin of another HOOK_API was called")
