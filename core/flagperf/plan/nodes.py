"""Asking nodes. Every question is answered in a process of its own with a time limit, so that a driver that hangs does
not hang the command."""

from __future__ import annotations

import msgspec

from flagperf.fleet import Fleet, open_fleet
from flagperf.plugins.installed import Plugins
from flagperf.spec import (
    CheckAnswer,
    CheckRequest,
    DescribeRequest,
    Job,
    NodeFacts,
    RendezvousAnswer,
    RendezvousRequest,
)

ADAPTER_SECONDS = 30.0
"""Time limit of an adapter's search for its cards."""

DESCRIBE_SECONDS = 60.0
"""Time limit of `describe`: longer than that of any adapter."""

MEETING_SECONDS = 60.0

CHECK_SECONDS = 3600.0
"""Time limit of `check`: hashing a large checkpoint is slow."""


def describe_nodes(
    fleet: Fleet, *, vendor: str | None = None, with_memory: bool = False, requires: tuple[str, ...] = ()
) -> tuple[NodeFacts, ...]:
    """With `vendor`, only that adapter is asked. Nodes that share a host have the same facts."""
    request = DescribeRequest(ADAPTER_SECONDS, vendor, with_memory, requires)
    facts = fleet.ask_all("describe", dict.fromkeys(asked_nodes(fleet), request), NodeFacts, DESCRIBE_SECONDS).all()
    return tuple(facts * len(fleet.nodes) if fleet.nodes_share_host else facts)


def check_nodes(fleet: Fleet, request: CheckRequest) -> CheckAnswer:
    """Every node must have the case's data. The files of the first node are recorded. Of several nodes, a problem says
    which ones have it."""
    requests = dict.fromkeys(asked_nodes(fleet), request)
    answers = fleet.ask_all("check", requests, CheckAnswer, CHECK_SECONDS).all()
    found = {index: answer.problem for index, answer in enumerate(answers) if answer.problem}
    if not found:
        return answers[0]
    first = min(found)
    alike = len(found) - 1
    where = fleet.name(first) + (f" and {alike} more node{'s' if alike > 1 else ''}" if alike else "")
    return CheckAnswer(problem=found[first] if len(answers) == 1 else f"{where}: {found[first]}")


def with_meeting_place(job: Job, fleet: Fleet, interface: str | None) -> Job:
    """The job with the address and port where its ranks meet, chosen on the first node right before the start."""
    place = meeting_place(fleet, interface)
    return msgspec.structs.replace(job, master_address=place.address, master_port=place.port)


def meeting_place(fleet: Fleet, interface: str | None) -> RendezvousAnswer:
    request = RendezvousRequest(fleet.nodes[0].address, interface or "")
    return fleet.ask_all("rendezvous", {0: request}, RendezvousAnswer, MEETING_SECONDS).all()[0]


def describe_machine(plugins: Plugins, with_memory: bool = False) -> NodeFacts:
    """This machine, for `devices`, `env` and `vendors list`."""
    with plugins.allocation("local", 1) as allocation, open_fleet(allocation) as fleet:
        return describe_nodes(fleet, with_memory=with_memory)[0]


def asked_nodes(fleet: Fleet) -> range:
    return range(1 if fleet.nodes_share_host else len(fleet.nodes))
