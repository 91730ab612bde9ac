from __future__ import annotations

from flagperf.api import Node
from flagperf.plugins.installed import load_plugins


def test_every_node_is_this_machine() -> None:
    with load_plugins().allocation("local", 2) as allocation:
        assert allocation.nodes == (Node("127.0.0.1", "127.0.0.1"),) * 2
        assert allocation.nodes_share_host
        assert allocation.agent_command(allocation.nodes[0], ["python", "-m", "x y"]) == ["python", "-m", "x y"]
        assert allocation.explain(allocation.nodes[0]) == ""
