"""Each node gets its own part of a job, however many there are."""

from __future__ import annotations

import msgspec

from flagperf.api import Device
from flagperf.spec.job import PlannedNode
from flagperf.spec.protocol import work_orders
from run_builders import minimal_job


def devices(num_devices: int) -> tuple[Device, ...]:
    return tuple(Device(f"cpu:{index}", "Some CPU", "CPU", index) for index in range(num_devices))


def test_every_rank_belongs_to_one_node() -> None:
    nodes = tuple(PlannedNode(index, f"10.0.0.{index}", f"h{index}", devices(2), 8) for index in range(3))
    orders = list(work_orders(minimal_job(nodes=nodes, host_workers=2), "/bundle", "ib0"))
    assert [list(order.ranks) for order in orders] == [[0, 1], [2, 3], [4, 5]]
    assert [order.node for order in orders] == list(nodes)
    assert {(order.num_nodes, order.world_size, order.directory, order.interface) for order in orders} == {
        (3, 6, "/bundle", "ib0")
    }
    share = orders[2].share("ib1")
    assert (share.node_index, share.num_nodes, share.devices, share.interface) == (2, 3, devices(2), "ib1")
    assert (share.master_address, share.master_port, share.allowed_cores) == ("127.0.0.1", 29500, 8)


def test_an_order_does_not_grow_with_the_number_of_nodes() -> None:
    def size(num_nodes: int) -> int:
        nodes = tuple(PlannedNode(index, "10.0.0.1", "host", devices(8), 8) for index in range(num_nodes))
        return len(msgspec.json.encode(next(work_orders(minimal_job(nodes=nodes)))))

    assert size(1000) < size(1) + 20
