"""Presence of a vendor's cards, from evidence in a fixed order.

A card on the bus with its device node is present. In a container sysfs shows the host's cards and the nodes show what
is mapped, so a card on the bus without its node is something to repair, not an absence. A node without a card on the
bus (hidden from sysfs, or an id that the adapter does not know) counts only together with the vendor's kernel module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from flagperf.api.device import Device, Presence
from flagperf.api.machine import Machine
from flagperf.errors import BadInput


class Evidence(msgspec.Struct, frozen=True):
    """Signs of cards, each in a few words that a person can check (`PCI 0000:07:00.0 10ab:0a01`, `/dev/acme0`)."""

    bus: tuple[str, ...] = ()
    """Cards on the PCI bus."""
    nodes: tuple[str, ...] = ()
    """Device nodes that a process needs to use them."""
    modules: tuple[str, ...] = ()
    """Kernel modules of the vendor."""
    tools: tuple[str, ...] = ()
    """Libraries and tools of the vendor. Alone they are no card: packages stay installed when a card leaves."""


def judge(evidence: Evidence, looked_for: str) -> Presence:
    """Judge whether cards are here. `looked_for` says in a few words what would have been evidence, for a user who has
    such a card."""
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


# Cards on the PCI bus, as sysfs shows them. In a container that is usually every card of the host.


_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


class PciFunction(msgspec.Struct, frozen=True):
    """Ids and class are lower-case hexadecimal without 0x: `10ab`, `0302`."""

    address: str
    """`dddd:bb:dd.f`."""
    vendor_id: str
    """Whose it is."""
    device_id: str
    """Which product it is."""
    class_id: str
    """Its kind: `0302` and `1200` are accelerators, `0604` is a bridge."""


def pci_functions(machine: Machine, vendor_id: str) -> list[PciFunction]:
    """Return everything of one vendor on the bus, bridges and audio included: the class tells them apart."""
    found = []
    for folder in machine.glob("/sys/bus/pci/devices/*"):
        path = f"/sys/bus/pci/devices/{folder.name}"
        texts = (machine.read(f"{path}/{name}") or "" for name in ("vendor", "device", "class"))
        vendor, device, kind = (text.lower().removeprefix("0x") for text in texts)
        if vendor == vendor_id:
            found.append(PciFunction(folder.name.lower(), vendor, device, kind[:4]))
    return found


def usable_nodes(machine: Machine, pattern: str) -> set[str]:
    """Return the names of device nodes that this process may open: not those of another job's cards, which a control
    group refuses. The kernel is asked, and no node is opened."""
    return {path.name for path in machine.glob(pattern) if os.access(path, os.R_OK | os.W_OK)}


def with_render_node(machine: Machine, functions: Iterable[PciFunction]) -> list[PciFunction]:
    """Return the functions whose node /dev/dri/renderD* this process may open; sysfs says which one is whose."""
    nodes = usable_nodes(machine, "/dev/dri/renderD*")
    own = ((each, machine.glob(f"/sys/bus/pci/devices/{each.address}/drm/renderD*")) for each in functions)
    return [each for each, paths in own if any(path.name in nodes for path in paths)]


def pci_address(text: str) -> str:
    """Return `dddd:bb:dd.f` in lower case, from the 4- or 8-digit domains and upper case of tools; "" for other
    text."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}".lower()


# The PCI link of a card to its host: generation and width, as sysfs shows them.


GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s -> generation."""

LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second of a lane in one direction, after its encoding."""

WIDTHS = (1, 2, 4, 8, 12, 16, 32)


def pci_link(machine: Machine, address: str) -> dict[str, str]:
    """Return properties of a Device: `pcie`, the highest speed of the card on the lanes that are connected (`Gen4
    x16`), and `pcie_now` if its speed is another at the moment, since an idle card often slows its link down. Empty if
    sysfs does not say: in virtual machines, and for functions that have no link of their own."""
    folder = f"/sys/bus/pci/devices/{address}"
    generations = []
    for name in ("current", "max"):  # `16.0 GT/s PCIe`; older kernels write `16 GT/s`; or `Unknown speed`
        speed = re.match(r"(\d+(?:\.\d+)?) GT/s", (machine.read(f"{folder}/{name}_link_speed") or "").strip())
        generations.append(GENERATIONS.get(f"{float(speed[1]):.1f}", 0) if speed else 0)
    now, most = generations
    lanes = (machine.read(f"{folder}/current_link_width") or "").strip()
    # 63 and 255 are widths of functions without a link of their own
    if not address or not now or not lanes.isdecimal() or int(lanes) not in WIDTHS:
        return {}
    highest = f"Gen{max(now, most)} x{int(lanes)}"
    return {"pcie": highest} if now >= most else {"pcie": highest, "pcie_now": f"Gen{now} x{int(lanes)}"}


def link_bytes_per_second(link: str) -> float | None:
    """Return the speed in one direction of a link as `pci_link` writes it."""
    found = re.fullmatch(r"Gen(\d) x(\d+)", link)
    lane = LANE_BYTES.get(int(found[1])) if found else None
    return None if found is None or lane is None else lane * int(found[2])


# Visibility variables: what an inherited one leaves of the cards, and in which order.


HIDES_ALL = ("", "-1")
"""Entries that are meant to name no card."""


def visible_devices(devices: Sequence[Device], environ: Mapping[str, str], variables: Sequence[str]) -> list[Device]:
    """Return what an inherited visibility variable leaves of the cards, in its order. A card is named by its index, its
    UUID or a unique beginning of one. Set to an empty value, a variable hides all cards. An entry that names no card
    hides itself and all that follow it; it may have meant a lost card, which has no number, so those are not hidden."""
    given = {name: environ[name] for name in variables if name in environ}
    if len(set(given.values())) > 1:
        listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise BadInput(f"visibility variables disagree: {listed}. Which of them wins is not known: set them equal")
    if not given:
        return list(devices)
    visible: list[Device] = []
    for entry in map(str.strip, next(iter(given.values())).split(",")):
        if entry.isdigit():
            named = [device for device in devices if device.physical_index == int(entry)][:1]
        else:
            named = [device for device in devices if entry and device.uuid.startswith(entry)]
        if len(named) != 1:
            lost = [device for device in devices if device.physical_index < 0 and device.problem]
            return visible + (lost if entry not in HIDES_ALL else [])
        if named[0] in visible:
            break
        visible += named
    return visible
