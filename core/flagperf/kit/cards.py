"""Cells of a tool's output to Cards and Devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flagperf.api.device import Device, DeviceBackend
from flagperf.api.launcher import near_cpus
from flagperf.api.machine import Machine
from flagperf.api.memory_probe import Reading
from flagperf.api.models import find_model
from flagperf.errors import ToolFailed, UnknownLayout
from flagperf.kit.presence import PciFunction, pci_address, pci_link, visible_devices

# From what a vendor's library or tool says of its cards to Devices.


class Card(msgspec.Struct, frozen=True):
    """One card or slice as its vendor describes it. `names` may be several: bus, tool and torch often disagree."""

    physical_index: int
    """The number by which the vendor's tool and its visibility variables call it, whatever is visible now. A tool that
    counts chips within a card has to be counted through."""
    names: tuple[str, ...]
    """Words of bus, tool or torch for it; the first one that fits a name_pattern decides the model."""
    uuid: str = ""
    """As the tool writes it."""
    pci_address: str = ""
    """Any form that tools use; it becomes `dddd:bb:dd.f`."""
    pci_id: str = ""
    """The PCI device id, where a model is told by it."""
    memory_bytes: int | None = None
    """As the card reports it; None where it does not."""
    slice: str = ""
    """The part of a card that it is, in the vendor's words; empty for a whole card."""
    problem: str = ""
    """The reason why it cannot be used, though it is there."""
    properties: dict[str, str] = {}
    """Further properties for the record."""
    identity: str = ""
    """Needed if neither UUID nor PCI address tells two of them apart; left empty otherwise."""
    board: str = ""
    """The board, if it is one of several chips on it; see Device.board."""


def unlisted_card(name: str, function: PciFunction, by: str) -> Card:
    """Return a card that is on the bus, with a device node that is ours, but left out by the vendor's library or tool:
    they forget a card that has fallen off the bus, and the others look like all of them."""
    problem = f"on the bus with its device node, but {by} does not list it: it seems to be lost, see the kernel's log"
    return Card(-1, (name,), pci_address=function.address, pci_id=function.device_id, problem=problem)


def make_devices(backend: DeviceBackend, machine: Machine, cards: Sequence[Card]) -> list[Device]:
    """Return Devices in visible order: an inherited visibility variable narrows and reorders."""
    devices = []
    for card in cards:
        address = pci_address(card.pci_address)
        identity = card.identity or card.uuid or address
        if not identity:
            raise ToolFailed(f"{backend.vendor} card {card.physical_index} has neither a UUID nor a PCI address")
        model = find_model(backend.models(), card.names, card.pci_id)
        name = model.name if model else card.names[0]
        short_name = model.short_name if model else name
        device = Device(
            id=identity,
            model=name,
            physical_index=card.physical_index,
            short_name=f"{short_name} ({card.slice})" if card.slice else short_name,
            memory_bytes=card.memory_bytes,
            uuid=card.uuid,
            pci_address=address,
            slice=card.slice,
            problem=card.problem,
            near_cpus=near_cpus(machine, address),
            properties={**pci_link(machine, address), **card.properties},
            board=card.board,
        )
        devices.append(device)
    if len({device.id for device in devices}) != len(devices):
        raise ToolFailed(f"two {backend.vendor} cards have one id: {', '.join(device.id for device in devices)}")
    return visible_devices(devices, machine.environ, backend.visibility_variables)


# Cells of what a tool prints: a number with its unit, or a word that says that there is none.


_NOTHING = re.compile(r"|-|-1(\.0+)?|n/?a|none|unknown|\[.*\]", re.IGNORECASE)

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")

_GROUPED = re.compile(r"[0-9]{1,3}\.[0-9]{3}")

_MIB = 1 << 20


class Cell(msgspec.Struct, frozen=True):
    """A figure as printed. `unit` is what the text must end in; "" where the header or the label says it.

    Memory in MiB or less that reads `98.304` is refused: the point may be a fraction's, or group the digits of a number
    that is a thousand times larger. `1024.00` is read."""

    text: str
    """As printed, with its unit or without."""
    unit: str = ""
    """End that the text must have, such as `MiB`."""
    scale: float = 1
    """Factor to bytes, percent, watts or degrees."""


def read_cells(key: str, cells: Mapping[str, Cell], properties: Mapping[str, str] | None = None) -> Reading:
    """Make one card's reading from cells by figure. A cell that says nothing is missing, with its own words as reason;
    a property that says nothing is left out: `N/A` is no name, and no two cards' id."""
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for figure, cell in cells.items():
        number = cell_number(cell.text, cell.unit)
        if number is None:
            missing[figure] = f"the tool says {cell.text.strip()!r}"
        elif not figure.endswith("_bytes"):
            values[figure] = number * cell.scale
        elif cell.scale <= _MIB and _GROUPED.fullmatch(cell.text.strip().removesuffix(cell.unit).strip()):
            raise UnknownLayout("memory whose point may group its digits", cell.text, cell.text)
        else:
            values[figure] = round(number * cell.scale)
    if values.get("total_bytes") == 0:  # so tools say it of a memory that they cannot see: one shared with the host
        unseen = [figure for figure in ("used_bytes", "total_bytes") if values.pop(figure, None) is not None]
        missing |= dict.fromkeys(unseen, "the tool says a total of 0")
    said = {name: text for name, text in (properties or {}).items() if not is_nothing(text)}
    return Reading(key, **values, missing=missing, properties=said)


def cell_number(text: str, unit: str = "") -> float | None:
    """Return None if the cell says that there is none. Raises UnknownLayout for what is neither that nor a number in
    `unit`."""
    if is_nothing(text):
        return None
    if not text.strip().endswith(unit):
        raise UnknownLayout(f"a cell that should be in {unit}", text, text)
    bare = text.strip().removesuffix(unit).strip()
    if is_nothing(bare):
        return None
    if not _NUMBER.fullmatch(bare):
        raise UnknownLayout("a cell that should be a number", text, text)
    return float(bare)


def whole_lines(text: str) -> list[str]:
    """Return the lines of an output that ends with a newline: a truncated last line may hold half a number."""
    if not text.endswith("\n"):
        raise UnknownLayout("an output that ends within a line", text, "".join(text.splitlines()[-1:]))
    return text.splitlines()


def is_nothing(text: str) -> bool:
    """Return True if a cell says that there is no value (N/A, -1, `[Not Supported]`, empty): missing, never 0."""
    return bool(_NOTHING.fullmatch(text.strip()))
