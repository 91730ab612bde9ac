"""The site of one machine: every node is this one."""

from __future__ import annotations

from collections.abc import Sequence

from flagperf.api import Allocation, Cluster, Node, NoOptions


class LocalAllocation(Allocation):
    nodes_share_host = True

    def __init__(self, num_nodes: int) -> None:
        self.nodes = tuple(Node("127.0.0.1", "127.0.0.1") for _ in range(num_nodes))

    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        return list(command)


class LocalCluster(Cluster):
    name = "local"

    def allocate(self, num_nodes: int, options: NoOptions) -> Allocation:
        return LocalAllocation(num_nodes)
