from __future__ import annotations

import msgspec
import pytest

from flagperf.agent import node_run
from flagperf.errors import NodeFailed
from flagperf.spec.protocol import work_orders
from run_builders import minimal_job


def test_an_interface_that_the_node_has_not_is_named_before_workers_start() -> None:
    (order,) = work_orders(minimal_job(), interface="nope0")
    assert node_run._interface(order) == ""  # one node needs none
    with pytest.raises(NodeFailed, match="no interface 'nope0' with an address; there are "):
        node_run._interface(msgspec.structs.replace(order, num_nodes=2))
