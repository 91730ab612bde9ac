"""Cards on the PCI bus, as sysfs shows them. In a container that is usually every card of the host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import msgspec

from flagperf.api.machine import Machine

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
    """What it is: `0302` and `1200` are accelerators, `0604` is a bridge."""


def pci_functions(machine: Machine, vendor_id: str) -> list[PciFunction]:
    """Everything of one vendor on the bus, bridges and audio included: the class tells them apart."""
    found = []
    for folder in machine.glob("/sys/bus/pci/devices/*"):
        path = f"/sys/bus/pci/devices/{folder.name}"
        vendor, device, kind = (_hex(machine.read(f"{path}/{name}")) for name in ("vendor", "device", "class"))
        if vendor == vendor_id:
            found.append(PciFunction(folder.name.lower(), vendor, device, kind[:4]))
    return found


def usable_nodes(machine: Machine, pattern: str) -> set[str]:
    """The names of device nodes that this process may open: not those of another job's cards, which a control group
    refuses. The kernel is asked, and no node is opened."""
    return {path.name for path in machine.glob(pattern) if os.access(path, os.R_OK | os.W_OK)}


def with_render_node(machine: Machine, functions: Iterable[PciFunction]) -> list[PciFunction]:
    """Those whose node /dev/dri/renderD* this process may open; sysfs says which one is whose."""
    nodes = usable_nodes(machine, "/dev/dri/renderD*")
    own = ((each, machine.glob(f"/sys/bus/pci/devices/{each.address}/drm/renderD*")) for each in functions)
    return [each for each, paths in own if any(path.name in nodes for path in paths)]


def pci_address(text: str) -> str:
    """`dddd:bb:dd.f` in lower case, from the 4- or 8-digit domains and upper case of tools; "" where it is none."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}".lower()


def _hex(text: str | None) -> str:
    return (text or "").lower().removeprefix("0x")
