"""From what a vendor's library or tool says of its cards to Devices."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.api.device import Device, DeviceBackend
from flagperf.api.machine import Machine
from flagperf.errors import ToolFailed
from flagperf.kit.cpus import near_cpus
from flagperf.kit.host_link import pci_link
from flagperf.kit.models_toml import find_model
from flagperf.kit.pci import PciFunction, pci_address
from flagperf.kit.visibility import visible_devices


class Card(msgspec.Struct, frozen=True):
    """One card or slice as its vendor describes it. `names` may be several: bus, tool and torch often disagree."""

    physical_index: int
    """The number by which the vendor's tool and its visibility variables call it, whatever is visible now. A tool that
    counts chips within a card has to be counted through."""
    names: tuple[str, ...]
    """What bus, tool or torch call it; the first one that fits a name_pattern decides the model."""
    uuid: str = ""
    """As the tool writes it."""
    pci_address: str = ""
    """In any form that tools use; it becomes `dddd:bb:dd.f`."""
    pci_id: str = ""
    """The PCI device id, where a model is told by it."""
    memory_bytes: int | None = None
    """As the card reports it; None where it does not."""
    slice: str = ""
    """What part of a card it is, in the vendor's words; empty for a whole card."""
    problem: str = ""
    """Why it cannot be used, though it is there."""
    properties: dict[str, str] = {}
    """What else belongs in the record."""
    identity: str = ""
    """Where neither UUID nor PCI address tells two of them apart; left empty otherwise."""
    board: str = ""
    """Of one of several chips on a board, see Device.board."""


def unlisted_card(name: str, function: PciFunction, by: str) -> Card:
    """A card on the bus, with a device node that is ours, that the vendor's library or tool leaves out: they forget a
    card that has fallen off the bus, and the others look like all of them."""
    problem = f"on the bus with its device node, but {by} does not list it: it seems to be lost, see the kernel's log"
    return Card(-1, (name,), pci_address=function.address, pci_id=function.device_id, problem=problem)


def make_devices(backend: DeviceBackend, machine: Machine, cards: Sequence[Card]) -> list[Device]:
    """In visible order: an inherited visibility variable narrows and reorders."""
    devices = [_device(backend, machine, card) for card in cards]
    if len({device.id for device in devices}) != len(devices):
        raise ToolFailed(f"two {backend.vendor} cards have one id: {', '.join(device.id for device in devices)}")
    return visible_devices(devices, machine.environ, backend.visibility_variables)


def _device(backend: DeviceBackend, machine: Machine, card: Card) -> Device:
    address = pci_address(card.pci_address)
    identity = card.identity or card.uuid or address
    if not identity:
        raise ToolFailed(f"{backend.vendor} card {card.physical_index} has neither a UUID nor a PCI address")
    model = find_model(backend.models(), card.names, card.pci_id)
    name = model.name if model else card.names[0]
    short_name = model.short_name if model else name
    return Device(
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
