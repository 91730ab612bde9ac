"""Where a run takes place. The agents' answers are given; plugins are a stand-in with two vendors."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from plan_builders import node, plugins, vendor

from flagperf.api import Device, Node
from flagperf.errors import BadInput, MissingPart
from flagperf.fleet.channel import node_name
from flagperf.plan import placement
from flagperf.plan.placement import Placement, find_placement
from flagperf.spec.job import RunSpec
from flagperf.spec.node_facts import Environment, Fact, MissingRequirement, NodeFacts
from flagperf.spec.user_file import UserFile
from minimal_backend import MinimalBackend

CARDS = tuple(Device(f"acme-{index}", "A1", "A1", index) for index in range(2))
SLOTS = tuple(Device(f"cpu:{index}", "EPYC", "CPU", index) for index in range(64))
ACME, ABSENT = vendor("acme", devices=CARDS), vendor("acme", "absent")
CPU = vendor("cpu", devices=SLOTS, memory_scope="host")
NO_FILE = UserFile()


class CpuBackend(MinimalBackend):
    vendor = "cpu"
    memory_scope = "host"
    is_fallback = True


class StandInFleet:
    addresses: tuple[str, ...] = ("10.0.0.0", "10.0.0.1", "10.0.0.2")

    def __init__(self, num_nodes: int, share_host: bool) -> None:
        self.nodes_share_host = share_host
        self.nodes = tuple(Node(f"host{index}", self.addresses[index]) for index in range(num_nodes))

    def name(self, index: int) -> str:
        return node_name(index, self.nodes[index])

    def python(self, index: int) -> str:
        return sys.executable


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Any:
    def find(*facts: NodeFacts, share_host: bool = False, user_file: UserFile = NO_FILE, **spec: Any) -> Placement:
        needs_worker = spec.pop("needs_worker", True)
        monkeypatch.setattr(placement, "describe_nodes", lambda *_, **__: facts)
        fleet: Any = StandInFleet(len(facts), share_host)
        request = RunSpec("toy", nodes=len(facts), cluster="named", **spec)
        return find_placement(request, plugins(CpuBackend(), MinimalBackend()), fleet, (), user_file, needs_worker)

    return find


def test_the_first_cards_of_every_node_are_taken(find: Any) -> None:
    found = find(node(CPU, ACME), node(CPU, ACME))
    assert [[device.id for device in part.devices] for part in found.parts] == [["acme-0"], ["acme-0"]]
    assert (found.device.model, found.host_workers, found.oversubscribed) == ("A1", 1, False)


def test_variables_that_may_hide_cards_are_named_with_their_values(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MinimalBackend, "visibility_variables", ("ACME_VISIBLE", "CARDS_VISIBLE"))
    environment = Environment({}, {}, {"ACME_VISIBLE": "", "LANG": "C"})
    hidden = msgspec.structs.replace(node(CPU, vendor("acme")), environment=environment)
    with pytest.raises(BadInput, match="host1 has 0 visible acme devices, with ACME_VISIBLE='': change or unset it"):
        find(hidden)


def test_nodes_of_different_vendors_need_a_word(find: Any) -> None:
    where = r"\(acme on node 0 \(host0\), cpu on node 1 \(host1\)\)"
    with pytest.raises(BadInput, match=rf"cards of different vendors {where}; choose with --vendor"):
        find(node(CPU, ACME), node(CPU, ABSENT))
    assert find(node(CPU, ACME), node(CPU, ABSENT), vendor="cpu").backend.vendor == "cpu"


def test_a_node_with_other_cards_or_without_is_named(find: Any) -> None:
    others = vendor("acme", devices=(Device("acme-7", "A2", "A2", 0), CARDS[1]))
    words = r"node 1 \(host1\) has other cards \(1 x A2, 1 x A1\) than node 0 \(host0\) \(2 x A1\); choose nodes with"
    with pytest.raises(BadInput, match=words):
        find(node(CPU, ACME), node(CPU, others), devices=2)
    with pytest.raises(BadInput, match=r"^node 1 \(host1\): --vendor acme: no usable card on host1"):
        find(node(CPU, ACME), node(CPU, ABSENT), vendor="acme")


def test_cards_of_one_machine_cannot_be_two_nodes(find: Any) -> None:
    with pytest.raises(BadInput, match="--nodes 2 with cluster 'named' would use the same acme cards twice"):
        find(node(CPU, ACME), node(CPU, ACME), share_host=True)


def test_one_machine_under_two_names_is_not_two_nodes(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandInFleet, "addresses", ("10.0.0.7", "10.0.0.7"))
    words = r"node 0 \(host0\) and node 1 \(host1\) seem to be one machine: both call themselves host1"
    with pytest.raises(BadInput, match=words):
        find(node(CPU, ABSENT), node(CPU, ABSENT))


def test_workers_of_one_machine_are_counted_together_and_only_slots_are_oversubscribed(find: Any) -> None:
    shared = find(node(CPU, ABSENT), node(CPU, ABSENT), share_host=True, devices=2)
    apart = find(node(CPU, ABSENT), node(CPU, ABSENT), devices=2)
    cards = find(msgspec.structs.replace(node(CPU, ACME), allowed_cores=1), devices=2)
    found = [(each.host_workers, each.oversubscribed) for each in (shared, apart, cards)]
    assert found == [(4, True), (2, False), (2, False)]


def test_what_the_case_needs_and_a_node_lacks_comes_with_the_command(find: Any) -> None:
    lacking = msgspec.structs.replace(node(CPU), missing_requirements=(MissingRequirement("accelerate>=0.30"),))
    with pytest.raises(MissingPart) as caught:
        find(node(CPU), lacking)
    assert "case toy cannot run on host1: accelerate>=0.30 (not installed)" in str(caught.value)
    assert "pip install 'flagperf[run]' -c torch.txt" in str(caught.value)
    assert "Install your vendor's torch first" in str(caught.value)
    assert find(lacking, needs_worker=False).backend.vendor == "cpu"


def test_what_the_owner_states_stands_in_the_facts(find: Any) -> None:
    found = find(node(CPU), user_file=UserFile({"network": "none"}, path="flagperf.toml"))
    assert found.facts[0].environment.facts["network"] == Fact("none", "stated")
