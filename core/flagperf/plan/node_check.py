"""Check that the nodes of a request can be used together, before anything is run on them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flagperf.errors import BadInput, NodeFailed
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import ADAPTER_SECONDS, DESCRIBE_SECONDS, asked_nodes, meeting_place
from flagperf.plan.placement import VendorChoice, cards_text, choose_vendor
from flagperf.plugins.installed import Plugins
from flagperf.spec.job import RunSpec
from flagperf.spec.protocol import DescribeRequest, InspectRequest, NodeState
from flagperf.units import GIB, SECOND_NS, gib

CLOCK_SECONDS = 2.0
"""A clock that is further away makes times of two nodes' logs hard to compare, and certificates and tokens fail."""

LEAST_SHM_BYTES = GIB
"""Below it, collectives of a machine's cards and loaders of data fail in ways that name something else. Many containers
have 64 MiB."""

MUST_BE_ALIKE = ("adapters", "cards")


class ClockOffset(msgspec.Struct, frozen=True):
    seconds: float
    """Positive: the node is ahead of this machine."""
    error_seconds: float
    """Half of the way there and back."""

    @property
    def least_seconds(self) -> float:
        """Return how far apart they are at least."""
        return max(0.0, abs(self.seconds) - self.error_seconds)


class CheckedNode(msgspec.Struct, frozen=True):
    index: int
    name: str
    """The cluster's word for it."""
    host: str = ""
    """Its own name. Empty for a node that was not reached."""
    facts: dict[str, str] = {}
    """What nodes usually have in common."""
    address: str = ""
    clock: ClockOffset | None = None
    problems: tuple[str, ...] = ()
    """Why it cannot be used."""
    warnings: tuple[str, ...] = ()

    @property
    def is_reached(self) -> bool:
        return bool(self.host)


class NodesReport(msgspec.Struct, frozen=True):
    nodes: tuple[CheckedNode, ...]
    common: dict[str, str]
    """What most of the nodes have, by fact."""

    def is_unlike(self, node: CheckedNode, fact: str) -> bool:
        return node.is_reached and node.facts[fact] != self.common[fact]

    def is_worth_a_row(self, node: CheckedNode) -> bool:
        return bool(node.problems or node.warnings) or any(self.is_unlike(node, fact) for fact in self.common)

    @property
    def differing_facts(self) -> list[str]:
        return [fact for fact in self.common if any(self.is_unlike(node, fact) for node in self.nodes)]


def check_nodes_of(spec: RunSpec, plugins: Plugins, fleet: Fleet) -> NodesReport:
    vendor = plugins.vendor_word(spec.vendor) if spec.vendor else None
    fallbacks = [given.value.vendor for given in plugins.device_backends() if given.value.is_fallback]
    said, failed = _ask(spec, vendor, fleet)

    def choice(state: NodeState) -> VendorChoice:
        return choose_vendor(state.facts, vendor, fallbacks, state.broken_adapters)

    nodes = [
        CheckedNode(index, fleet.nodes[index].name, problems=(str(failed[index]),))
        if index in failed
        else _checked(index, fleet, *said[index], choice, spec.data_dir)
        for index in asked_nodes(fleet)
    ]
    if fleet.nodes_share_host:
        nodes = [msgspec.structs.replace(nodes[0], index=index) for index in range(len(fleet.nodes))]
    return compare(nodes, are_one_machine=fleet.nodes_share_host)


def compare(nodes: Sequence[CheckedNode], are_one_machine: bool = False) -> NodesReport:
    """Add to each node what is wrong beside the others: other cards or adapters, a machine that is there twice."""
    reached = [node for node in nodes if node.is_reached]
    names = reached[0].facts if reached else {}
    common = {name: Counter(node.facts[name] for node in reached).most_common(1)[0][0] for name in names}
    firsts: dict[tuple[str, str], CheckedNode] = {}
    checked = []
    for node in nodes:
        unlike = [name for name in MUST_BE_ALIKE if node.is_reached and node.facts[name] != common[name]]
        found = [f"{name}: {node.facts[name]}, where most have {common[name]}" for name in unlike]
        first = firsts.setdefault((node.host, node.address), node) if node.is_reached and node.address else node
        if first is not node and not are_one_machine:
            found.append(
                f"it is the machine of node {first.index} ({first.name}): both are {node.host} at {node.address}"
            )
        checked.append(msgspec.structs.replace(node, problems=(*node.problems, *found)))
    return NodesReport(tuple(checked), common)


# --- asking -----------------------------------------------------------------------------------------------------------


def _ask(
    spec: RunSpec, vendor: str | None, fleet: Fleet
) -> tuple[dict[int, tuple[NodeState, ClockOffset]], dict[int, NodeFailed]]:
    """Ask all nodes at once, after the address of the first one, so that the others can look for the way to it."""
    failed = fleet.start(asked_nodes(fleet))
    first_address, why_none = "", ""
    if 0 not in failed:
        try:
            first_address = meeting_place(fleet, spec.interface).address
        except NodeFailed as error:
            why_none = str(error)
    data_dir = str(Path(spec.data_dir).absolute()) if spec.data_dir else None
    describe = DescribeRequest(ADAPTER_SECONDS, vendor)
    request = InspectRequest(describe, data_dir, first_address, spec.interface or "")
    conversation = _Conversation()
    indexes = [index for index in asked_nodes(fleet) if index not in failed]
    requests = dict.fromkeys(indexes, request)
    answers = fleet.ask_all("inspect", requests, type(None), DESCRIBE_SECONDS, conversation.take)
    failed.update(answers.failed)
    said = {}
    for index in answers.given:
        try:
            said[index] = conversation.said(index)
        except ValueError as error:
            failed[index] = NodeFailed(f"its answer to `inspect` cannot be read ({error})")
    if why_none and 0 in said:
        state, clock = said[0]
        said[0] = msgspec.structs.replace(state, network_problem=why_none), clock
    return said, failed


class _Conversation:
    """Collects what the nodes say, and when the first word of each came."""

    def __init__(self) -> None:
        self._asked_ns = time.time_ns()
        self._heard_ns: dict[int, int] = {}
        self._contents: dict[int, bytearray] = {}

    def take(self, index: int, content: bytes) -> None:
        self._heard_ns.setdefault(index, time.time_ns())
        self._contents.setdefault(index, bytearray()).extend(content)

    def said(self, index: int) -> tuple[NodeState, ClockOffset]:
        """Raise ValueError for anything but an answer, as decoding does."""
        clock, _, state = bytes(self._contents.get(index, b"")).partition(b"\n")
        decoded = msgspec.json.decode(state, type=NodeState)
        heard_ns = self._heard_ns[index]
        offset_ns = int(clock) - (self._asked_ns + heard_ns) / 2
        return decoded, ClockOffset(offset_ns / SECOND_NS, (heard_ns - self._asked_ns) / 2 / SECOND_NS)


# --- judging ----------------------------------------------------------------------------------------------------------


def _checked(
    index: int,
    fleet: Fleet,
    state: NodeState,
    clock: ClockOffset,
    choose: Callable[[NodeState], VendorChoice],
    data_dir: str | None,
) -> CheckedNode:
    try:
        choice, no_choice = choose(state), ""
    except BadInput as error:
        choice, no_choice = None, str(error)
    cards = choice.facts.devices if choice else ()
    broken = [f"card {card.id} cannot be used: {card.problem}" for card in cards if card.problem]
    problems = [no_choice, *broken, state.network_problem, state.data_problem]
    warnings = []
    if clock.least_seconds > CLOCK_SECONDS:
        warnings.append(f"its clock is {clock.seconds:+.1f} s from this machine's; let both follow a time server")
    if state.shm_bytes < LEAST_SHM_BYTES:
        warnings.append(f"/dev/shm has {gib(state.shm_bytes)} GiB; collectives and data loaders often need more")
    if state.has_rdma and state.locked_bytes is not None:
        warnings.append(f"it has RDMA, and a process may lock {state.locked_bytes >> 10} KiB only; see `ulimit -l`")
    return CheckedNode(
        index=index,
        name=fleet.nodes[index].name,
        host=state.facts.host,
        facts=_facts(state, choice, data_dir),
        address=state.address,
        clock=clock,
        problems=tuple(filter(None, problems)),
        warnings=tuple(warnings),
    )


def _facts(state: NodeState, choice: VendorChoice | None, data_dir: str | None) -> dict[str, str]:
    environment = state.facts.environment
    data = {"data": "cannot be read" if state.data_problem else f"{data_dir} can be read"} if data_dir else {}
    if choice is None:
        cards = "unclear"
    elif choice.facts.memory_scope == "host":
        cards = f"none ({choice.facts.vendor})"
    else:
        cards = cards_text(choice.facts.devices)
    return {
        "interpreter": state.python,
        "python": environment.facts["python"].value or "unknown",
        "flagperf": environment.packages.get("flagperf", "unknown"),
        "torch": environment.packages.get("torch", "none"),
        "adapters": ", ".join(sorted(facts.adapter for facts in state.facts.vendors)) or "none",
        "cards": cards,
        **data,
        "interface": state.interface or ("loopback" if state.address else "unknown"),
        "free port": "no" if state.network_problem or not state.address else "yes",
        "shared memory": f"{gib(state.shm_bytes)} GiB",
        "locked memory": "no limit" if state.locked_bytes is None else f"{state.locked_bytes >> 10} KiB",
        "open files": "no limit" if state.max_files is None else f"{state.max_files}",
    }
