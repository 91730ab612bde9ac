"""Raises in one hook; what its other hook gives is good."""

from flagperf.api import Allocation, Cluster, DeviceBackend, NoOptions
from flagperf.errors import BadInput
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


class BackYard(Cluster):
    name = "backyard"

    def allocate(self, num_nodes: int, options: NoOptions) -> Allocation:
        raise BadInput("the back yard is empty")


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    raise ValueError("no firmware table for this board")


@hookimpl
def flagperf_clusters() -> list[Cluster]:
    return [BackYard()]
