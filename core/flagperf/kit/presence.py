"""Whether a vendor's cards are here, from evidence in a fixed order.

A card on the bus with its device node is present. In a container sysfs shows the host's cards and the nodes show what
is mapped, so a card on the bus without its node is something to repair, not an absence. A node without a card on the
bus (hidden from sysfs, or an id that the adapter does not know) counts only together with the vendor's kernel module.
"""

from __future__ import annotations

import msgspec

from flagperf.api.device import Presence


class Evidence(msgspec.Struct, frozen=True):
    """What was found, each in a few words that a person can check (`PCI 0000:07:00.0 10ab:0a01`, `/dev/acme0`)."""

    bus: tuple[str, ...] = ()
    """Cards on the PCI bus."""
    nodes: tuple[str, ...] = ()
    """Device nodes that a process needs to use them."""
    modules: tuple[str, ...] = ()
    """Kernel modules of the vendor."""
    tools: tuple[str, ...] = ()
    """Libraries and tools of the vendor. Alone they are no card: packages stay installed when a card leaves."""


def judge(evidence: Evidence, looked_for: str) -> Presence:
    """`looked_for` says in a few words what would have been evidence, for a user who has such a card."""
    everything = (*evidence.bus, *evidence.nodes, *evidence.modules, *evidence.tools)
    if evidence.bus and evidence.nodes:
        return Presence("present", everything)
    if evidence.bus:
        return Presence("partial", everything, "on the bus, but its device node is not here: map it into the container")
    if evidence.nodes and evidence.modules:
        return Presence("present", everything, "by its node and kernel module; not among the known cards on the bus")
    if evidence.nodes:
        return Presence("partial", everything, "a device node, but no known card on the bus and no kernel module")
    if evidence.modules:
        return Presence("partial", everything, "a kernel module, but no card on the bus and no device node")
    found = f"; found only {', '.join(evidence.tools)}" if evidence.tools else ""
    return Presence("absent", (), f"looked for {looked_for}{found}")
