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


class VendorChoice(msgspec.Struct, frozen=True):
    facts: VendorFacts
    note: str
    """The first line of a run: which vendor, and why."""


def choose_vendor(
    node: NodeFacts, asked: str | None, fallbacks: Collection[str], broken_adapters: Sequence[str] = ()
) -> VendorChoice:
    """Choose the vendor that was asked for, else the one whose cards are present. A fallback such as the CPU is chosen
    only where every installed adapter reports that it found nothing.

    `asked` is a vendor word, already translated from an alias; `fallbacks` are vendors that every machine has.
    `broken_adapters` are installed plugins that could not be asked, each with the reason.
    """
    if asked is not None:
        facts = next(facts for facts in node.vendors if facts.vendor == asked)
        if _state(facts) != "present" and facts.has_failed:
            raise PluginFailed(f"--vendor {asked}: nothing is known of its cards on {node.host}: {facts.error}")
        if _state(facts) != "present":
            raise BadInput(f"--vendor {asked}: no usable card on {node.host}. {describe_finding(facts)}")
        return VendorChoice(facts, facts.shown_vendor)
    alternative = " or ".join(f"--vendor {word}" for word in sorted(fallbacks))
    adapters = [facts for facts in node.vendors if facts.vendor not in fallbacks]
    if unclear := [facts for facts in adapters if _state(facts) not in ("present", "absent")]:
        findings = "; ".join(f"{facts.vendor}: {describe_finding(facts)}" for facts in unclear)
        raise BadInput(f"cannot tell which vendor to use. {findings}. Repair it, or use {alternative}")
    present = [facts for facts in adapters if _state(facts) == "present"]
    if len(present) > 1:
        words = ", ".join(facts.vendor for facts in present)
        raise BadInput(f"cards of several vendors are present ({words}); choose one with --vendor")
    if present:
        return VendorChoice(present[0], present[0].shown_vendor)
    if broken_adapters:
        raise BadInput(
            f"no card was found, but not every adapter could be asked: {'; '.join(broken_adapters)}. "
            f"Repair or uninstall it, or use {alternative}"
        )
    fallback = next((facts for facts in node.vendors if facts.vendor in fallbacks), None)
    if fallback is None:
        raise BadInput(f"no installed adapter finds a card here; see `{flagperf_command('vendors', 'list')}`")
    looked = ", ".join(sorted(facts.vendor for facts in adapters))
    reason = f"no accelerator found by: {looked}" if looked else "no vendor adapter is installed"
    return VendorChoice(fallback, f"{fallback.vendor} ({reason})")


def describe_finding(facts: VendorFacts) -> str:
    """Return evidence, reason or error of one adapter, in one line."""
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
        """Return the card that names the run."""
        return self.parts[0].devices[0]

    @property
    def host_workers(self) -> int:
        """Return how many workers one machine has."""
        per_node = len(self.parts[0].devices)
        return per_node * len(self.parts) if self.nodes_share_host else per_node

    @property
    def cores_of_device(self) -> int | None:
        """Return the cores of each device; None where the devices are not cores of the host."""
        is_host = self.backend.memory_scope == "host"
        return cores_of_device(self.parts, self.host_workers) if is_host else None

    @property
    def oversubscribed(self) -> bool:
        """Return true if the slots that share the cores of a machine are more than those."""
        return self.backend.memory_scope == "host" and self.host_workers > self.parts[0].allowed_cores


def cores_of_device(nodes: tuple[PlannedNode, ...], host_workers: int) -> int:
    """Return how many threads each worker of the first node computes with, where the devices are cores."""
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
    if spec.nodes > 1 and fleet.nodes_share_host and backend.memory_scope != "host":
        raise BadInput(
            f"--nodes {spec.nodes} with cluster {spec.cluster!r} would use the same {backend.vendor} cards twice; "
            "several nodes need a cluster that reaches several machines"
        )
    parts = tuple(_part(spec, index, fleet.nodes[index], node, backend) for index, node in enumerate(facts))
    _check_parts(parts, fleet, backend)
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


def _check_parts(parts: tuple[PlannedNode, ...], fleet: Fleet, backend: DeviceBackend) -> None:
    """Raise BadInput if a machine is there under two names, as it would be counted twice, or if nodes have other cards
    than the first one, whose cards give the run its name, peaks and tuning."""
    found: dict[object, int] = {}
    for part in () if fleet.nodes_share_host else parts:
        # Names alone do not tell: machines may have been set up from one image.
        identity = part.host, part.address, tuple(device.id for device in part.devices)
        first = found.setdefault(identity, part.index)
        if first != part.index:
            raise BadInput(
                f"{fleet.name(first)} and {fleet.name(part.index)} seem to be one machine: both call themselves "
                f"{part.host} and have the same devices; name each machine once, or give each a host name of its own"
            )
    cards = cards_text(parts[0].devices)
    for part in () if backend.memory_scope == "host" else parts[1:]:
        if (other := cards_text(part.devices)) != cards:
            raise BadInput(
                f"{fleet.name(part.index)} has other cards ({other}) than {fleet.name(0)} ({cards}); choose nodes with "
                f"the same cards: `{flagperf_command('nodes', 'check')}` compares them"
            )


def cards_text(devices: Iterable[Device]) -> str:
    """Count the cards of each model, as `8 x C500`."""
    return ", ".join(f"{count} x {model}" for model, count in Counter(device.model for device in devices).items())


def _part(spec: RunSpec, index: int, node: Node, facts: NodeFacts, backend: DeviceBackend) -> PlannedNode:
    vendor_word, variables = backend.vendor, backend.visibility_variables
    vendor = next(vendor for vendor in facts.vendors if vendor.vendor == vendor_word)
    if spec.devices > len(vendor.devices):
        visible = f"{len(vendor.devices)} visible {vendor_word} devices"
        given = facts.environment.variables
        listed = ", ".join(f"{name}={given[name]!r}" for name in variables if name in given)
        hiding = f", with {listed}: change or unset it to see more cards" if listed else ""
        raise BadInput(f"--devices {spec.devices}: {facts.host} has {visible}{hiding}")
    devices = vendor.devices[: spec.devices]
    for device in devices:
        if device.problem:
            hint = f"; leave it out with {variables[0]}" if variables else ""
            raise BadInput(f"{facts.host}: {vendor_word} card {device.id} cannot be used: {device.problem}{hint}")
    return PlannedNode(index, node.address or node.name, facts.host, devices, facts.allowed_cores)
