"""Raises in one hook; what its other hook gives is good."""

from collections.abc import Sequence

from flagperf.api import AgentProcess, Cluster, DeviceBackend, Node
from flagperf.errors import BadInput
from flagperf.hookspecs import hookimpl

FLAGPERF_HOOK_API = 1


class BackYard(Cluster):
    name = "backyard"

    def nodes(self, num_nodes: int) -> list[Node]:
        raise BadInput("the back yard is empty")

    def start_agent(self, node: Node, arguments: Sequence[str]) -> AgentProcess:
        raise NotImplementedError

    def collect(self, node: Node, directory: str) -> None: ...


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    raise ValueError("no firmware table for this board")


@hookimpl
def flagperf_clusters() -> list[Cluster]:
    return [BackYard()]
