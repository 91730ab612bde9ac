"""Placement: the nodes of a run, the vendor that all of them use, and the cards of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from flagperf.api import Device, DeviceBackend, Node
from flagperf.errors import BadInput, MissingPart, PluginFailed, Unsupported
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import describe_nodes, with_image
from flagperf.plugins.installed import Plugins
from flagperf.spec.job import PlannedNode, RunSpec
from flagperf.spec.node_facts import NodeFacts, VendorFacts
from flagperf.spec.user_file import UserFile, with_stated_environment
from flagperf.text import flagperf_command, pip_command

# Which vendor a run uses. The CPU is the default only where every installed adapter reports that it found nothing.


class VendorChoice(msgspec.Struct, frozen=True):
    facts: VendorFacts
    note: str
    """The first line of a run: which vendor, and why."""


def choose_vendor(
    node: NodeFacts, asked: str | None, fallbacks: Collection[str], broken_adapters: Sequence[str] = ()
) -> VendorChoice:
    """`asked` is a vendor word, already translated from an alias; `fallbacks` are vendors that every machine has.
    `broken_adapters` are installed plugins that could not be asked, each with the reason."""
    if asked is not None:
        facts = _asked_for(node, asked)
        return VendorChoice(facts, facts.shown_vendor)
    adapters = [facts for facts in node.vendors if facts.vendor not in fallbacks]
    _refuse_unclear(adapters, fallbacks)
    present = [facts for facts in adapters if _state(facts) == "present"]
    if len(present) > 1:
        words = ", ".join(facts.vendor for facts in present)
        raise BadInput(f"cards of several vendors are present ({words}); choose one with --vendor")
    if present:
        return VendorChoice(present[0], present[0].shown_vendor)
    if broken_adapters:
        raise BadInput(
            f"no card was found, but not every adapter could be asked: {'; '.join(broken_adapters)}. "
            f"Repair or uninstall it, or use {_alternative(fallbacks)}"
        )
    return _fallback(node, adapters, fallbacks)


def _asked_for(node: NodeFacts, asked: str) -> VendorFacts:
    facts = next(facts for facts in node.vendors if facts.vendor == asked)
    if _state(facts) != "present":
        if facts.has_failed:
            raise PluginFailed(f"--vendor {asked}: nothing is known of its cards on {node.host}: {facts.error}")
        raise BadInput(f"--vendor {asked}: no usable card on {node.host}. {describe_finding(facts)}")
    return facts


def _refuse_unclear(adapters: Sequence[VendorFacts], fallbacks: Collection[str]) -> None:
    unclear = [facts for facts in adapters if _state(facts) not in ("present", "absent")]
    if unclear:
        findings = "; ".join(f"{facts.vendor}: {describe_finding(facts)}" for facts in unclear)
        raise BadInput(f"cannot tell which vendor to use. {findings}. Repair it, or use {_alternative(fallbacks)}")


def _alternative(fallbacks: Collection[str]) -> str:
    return " or ".join(f"--vendor {word}" for word in sorted(fallbacks))


def _fallback(node: NodeFacts, adapters: Sequence[VendorFacts], fallbacks: Collection[str]) -> VendorChoice:
    facts = next((facts for facts in node.vendors if facts.vendor in fallbacks), None)
    if facts is None:
        raise BadInput(f"no installed adapter finds a card here; see `{flagperf_command('vendors', 'list')}`")
    looked = ", ".join(sorted(other.vendor for other in adapters))
    reason = f"no accelerator found by: {looked}" if looked else "no vendor adapter is installed"
    return VendorChoice(facts, f"{facts.vendor} ({reason})")


def describe_finding(facts: VendorFacts) -> str:
    """Evidence, reason or error of one adapter, in one line."""
    if facts.error:
        return facts.error
    if facts.presence is None:
        return "not searched for"
    parts = [*facts.presence.evidence, facts.presence.reason]
    return "; ".join(part for part in parts if part) or facts.presence.state


def _state(facts: VendorFacts) -> str:
    return "error" if facts.error or facts.presence is None else facts.presence.state


class Placement(msgspec.Struct, frozen=True):
    nodes_share_host: bool
    facts: tuple[NodeFacts, ...]
    choice: VendorChoice
    backend: DeviceBackend
    parts: tuple[PlannedNode, ...]

    @property
    def device(self) -> Device:
        """The card that names the run."""
        return self.parts[0].devices[0]

    @property
    def host_workers(self) -> int:
        """Workers on one machine."""
        per_node = len(self.parts[0].devices)
        return per_node * len(self.parts) if self.nodes_share_host else per_node

    @property
    def cores_of_device(self) -> int | None:
        """Where the devices are cores of the host."""
        is_host = self.backend.memory_scope == "host"
        return cores_of_device(self.parts, self.host_workers) if is_host else None

    @property
    def oversubscribed(self) -> bool:
        """Slots that share the cores of a machine may be more than those."""
        return self.backend.memory_scope == "host" and self.host_workers > self.parts[0].allowed_cores


def cores_of_device(nodes: tuple[PlannedNode, ...], host_workers: int) -> int:
    """Of each worker of the first node, where the devices are cores: the threads that it computes with."""
    return max(1, nodes[0].allowed_cores // host_workers)


def find_placement(
    spec: RunSpec, plugins: Plugins, fleet: Fleet, requires: tuple[str, ...], user_file: UserFile, needs_worker: bool
) -> Placement:
    asked = plugins.vendor_word(spec.vendor) if spec.vendor else None
    described = with_image(describe_nodes(fleet, vendor=asked, requires=requires), spec, fleet)
    if needs_worker:
        _check_requirements(spec.case, described)
    facts = tuple(with_stated_environment(node, user_file) for node in described)
    choice = _same_vendor(facts, asked, plugins, fleet)
    backend = plugins.checked_backend(choice.facts.vendor)
    _check_sharing(spec, fleet, backend)
    parts = tuple(_part(spec, index, fleet.nodes[index], node, backend) for index, node in enumerate(facts))
    _check_machines(parts, fleet)
    if backend.memory_scope != "host":
        _check_cards(parts, fleet)
    placement = Placement(fleet.nodes_share_host, facts, choice, backend, parts)
    if fleet.nodes_share_host and placement.host_workers > len(choice.facts.devices):
        slots = f"{len(choice.facts.devices)} {backend.vendor} devices"
        raise BadInput(f"--nodes {spec.nodes} --devices {spec.devices} is more than this machine's {slots}")
    return placement


def _check_requirements(case: str, facts: tuple[NodeFacts, ...]) -> None:
    for node in facts:
        too_old = [str(missing) for missing in node.missing_requirements if missing.found]
        if too_old:
            raise Unsupported(f"case {case} cannot run on {node.host}: it needs {', '.join(too_old)}")
        if node.missing_requirements:
            missing = ", ".join(map(str, node.missing_requirements))
            raise MissingPart(
                f"case {case} cannot run on {node.host}: {missing}. Install your vendor's torch first (for the CPU: "
                f"`{pip_command('install', 'torch')}`): where there is none, pip takes one of its own choice. Then the "
                f"rest, with that torch kept: `{flagperf_command('env', '--torch-constraint')} > torch.txt && "
                f"{pip_command('install', 'flagperf[run]', '-c', 'torch.txt')}`"
            )


def _same_vendor(facts: tuple[NodeFacts, ...], asked: str | None, plugins: Plugins, fleet: Fleet) -> VendorChoice:
    fallbacks = [given.value.vendor for given in plugins.device_backends() if given.value.is_fallback]
    broken = plugins.broken_adapters()
    found: dict[str, tuple[int, VendorChoice]] = {}
    """Of each vendor, the first node that has it."""
    for index, node in enumerate(facts):
        try:
            choice = choose_vendor(node, asked, fallbacks, broken)
        except BadInput as error:
            raise BadInput(f"{fleet.name(index)}: {error}") if len(facts) > 1 else error from None
        found.setdefault(choice.facts.vendor, (index, choice))
    if len(found) > 1:
        listed = ", ".join(f"{word} on {fleet.name(index)}" for word, (index, _) in sorted(found.items()))
        raise BadInput(f"the nodes have cards of different vendors ({listed}); choose with --vendor")
    return next(iter(found.values()))[1]


def _check_machines(parts: tuple[PlannedNode, ...], fleet: Fleet) -> None:
    """One machine under two names would be counted twice. Names alone do not tell: machines may have been set up from
    one image, so their addresses and devices count too."""
    if fleet.nodes_share_host:
        return
    found: dict[object, int] = {}
    for part in parts:
        identity = part.host, part.address, tuple(device.id for device in part.devices)
        first = found.setdefault(identity, part.index)
        if first != part.index:
            raise BadInput(
                f"{fleet.name(first)} and {fleet.name(part.index)} seem to be one machine: both call themselves "
                f"{part.host} and have the same devices; name each machine once, or give each a host name of its own"
            )


def _check_cards(parts: tuple[PlannedNode, ...], fleet: Fleet) -> None:
    """Name, peaks and tuning of a run are those of the first node's cards."""
    first = cards_text(parts[0].devices)
    for part in parts[1:]:
        if (other := cards_text(part.devices)) != first:
            raise BadInput(
                f"{fleet.name(part.index)} has other cards ({other}) than {fleet.name(0)} ({first}); choose nodes with "
                f"the same cards: `{flagperf_command('nodes', 'check')}` compares them"
            )


def cards_text(devices: Iterable[Device]) -> str:
    """`8 x C500`"""
    return ", ".join(f"{count} x {model}" for model, count in Counter(device.model for device in devices).items())


def _check_sharing(spec: RunSpec, fleet: Fleet, backend: DeviceBackend) -> None:
    if spec.nodes > 1 and fleet.nodes_share_host and backend.memory_scope != "host":
        raise BadInput(
            f"--nodes {spec.nodes} with cluster {spec.cluster!r} would use the same {backend.vendor} cards twice; "
            "several nodes need a cluster that reaches several machines"
        )


def _part(spec: RunSpec, index: int, node: Node, facts: NodeFacts, backend: DeviceBackend) -> PlannedNode:
    vendor_word, variables = backend.vendor, backend.visibility_variables
    vendor = next(vendor for vendor in facts.vendors if vendor.vendor == vendor_word)
    if spec.devices > len(vendor.devices):
        visible = f"{len(vendor.devices)} visible {vendor_word} devices"
        raise BadInput(f"--devices {spec.devices}: {facts.host} has {visible}{_hiding(variables, facts)}")
    devices = vendor.devices[: spec.devices]
    for device in devices:
        if device.problem:
            hint = f"; leave it out with {variables[0]}" if variables else ""
            raise BadInput(f"{facts.host}: {vendor_word} card {device.id} cannot be used: {device.problem}{hint}")
    return PlannedNode(index, node.address or node.name, facts.host, devices, facts.allowed_cores)


def _hiding(variables: tuple[str, ...], facts: NodeFacts) -> str:
    """What is set there that may hide cards."""
    given = facts.environment.variables
    listed = ", ".join(f"{name}={given[name]!r}" for name in variables if name in given)
    return f", with {listed}: change or unset it to see more cards" if listed else ""
