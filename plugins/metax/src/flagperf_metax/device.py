"""MetaX cards. Their torch answers to `torch.cuda` with the compute capability of another vendor's card, so that
presence comes from the bus, the device node and the kernel module alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flagperf.api import Device, Machine, Presence, Reading
from flagperf.kit import (
    Card,
    Evidence,
    PciFunction,
    Query,
    TorchDeviceBackend,
    ask_any,
    ask_first,
    judge,
    make_devices,
    pci_functions,
    unlisted_card,
    with_render_node,
)
from flagperf_metax.launcher import VISIBILITY_VARIABLES
from flagperf_metax.memory import BOARD_POWER, DEVICE_NODE, JSON, MEMORY, MX_SMI, PCI_VENDOR, TABLE, is_metax_machine
from flagperf_metax.smi import parse_list, parse_version

LIST = Query(("-L",), parse_list, ())
VERSION = Query(("--show-version",), parse_version, ())

_KNOWN_PCI_IDS = ("0a01",)
"""The ids of the other models are not published: those are cards when the vendor's driver holds them."""
_DRIVER = "METAX"
_LIBRARIES = ("/opt/mxdriver/lib/libmxsml.so", "/opt/maca/lib/libmxsml.so", "/opt/mxn100/lib/libmxsml.so")
_LOOKED_FOR = f"PCI vendor {PCI_VENDOR}, {DEVICE_NODE} and the kernel module metax"


class MetaxBackend(TorchDeviceBackend):
    vendor = "metax"
    title = {"en": "MetaX", "zh": "沐曦"}  # noqa: RUF012
    torch_type = "cuda"
    collective_backend = "nccl"
    visibility_variables = VISIBILITY_VARIABLES
    precisions = ("fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
    tf32_switches = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
    version_fields = ("maca", "cuda", "hip")
    pci_address_call = "mcDeviceGetPCIBusId"

    def data_folder(self) -> Path:
        return Path(__file__).parent

    def presence(self, machine: Machine) -> Presence:
        return judge(_evidence(machine), _LOOKED_FOR)

    def devices(self, machine: Machine) -> list[Device]:
        return make_devices(self, machine, _cards(machine))

    def versions(self, machine: Machine) -> dict[str, str]:
        """KMD is the driver. MACA, the tool and the BIOS have versions of their own."""
        answers = ask_first(MX_SMI, machine, (JSON, VERSION, TABLE))
        said = answers[0].properties if answers else {}
        names: tuple[str, ...] = ("driver", "maca", "mx_smi", "bios")
        return {**_maca_on_disk(machine), **{name: said[name] for name in names if name in said}}

    def wrong_build(self, torch: Any) -> str:
        if getattr(torch.version, "maca", None):
            return ""
        return "it has no torch.version.maca; install MetaX's own build (its version ends in +metax...)"


# --- presence --------------------------------------------------------------------------------------------------------


def _evidence(machine: Machine) -> Evidence:
    tool = MX_SMI.find(machine) if is_metax_machine(machine) else None
    libraries = [path for path in _LIBRARIES if machine.glob(path)]
    return Evidence(
        bus=tuple(f"PCI {card.address} {card.vendor_id}:{card.device_id}" for card in _cards_on_the_bus(machine)),
        nodes=(DEVICE_NODE,) if machine.glob(DEVICE_NODE) else (),
        modules=("kernel module metax",) if machine.glob("/sys/module/metax") else (),
        tools=(*libraries, *([tool] if tool else [])),
    )


def _cards_on_the_bus(machine: Machine) -> list[PciFunction]:
    held = {path.name.lower() for path in machine.glob(f"/sys/bus/pci/drivers/{_DRIVER}/*")}
    functions = pci_functions(machine, PCI_VENDOR)
    return [each for each in functions if each.device_id in _KNOWN_PCI_IDS or each.address in held]


# --- discovery -------------------------------------------------------------------------------------------------------


def _cards(machine: Machine) -> list[Card]:
    """In the tool's order. A card that is cut into slices is not itself a device: its memory and time are theirs. Last,
    the lost ones."""
    known = {reading.device_id: reading for reading in _described(machine)}
    sliced = {reading.properties["pci_address"] for reading in known.values() if "slice" in reading.properties}
    cards = [
        _card(reading, known[reading.properties["pci_address"]]) for key, reading in known.items() if key not in sliced
    ]
    return [*cards, *_lost_cards(machine, cards)]


def _lost_cards(machine: Machine, cards: Iterable[Card]) -> list[Card]:
    """Cards of the bus that the tool leaves out though their node is here. It lists those that are not mapped."""
    listed = {card.pci_address for card in cards}
    others = [each for each in _cards_on_the_bus(machine) if each.address not in listed]
    return [unlisted_card("MetaX card", each, "mx-smi") for each in with_render_node(machine, others)]


def _described(machine: Machine) -> list[Reading]:
    """By -L, which alone has UUIDs; by the table where a release does not print -L in a known way."""
    return ask_any(MX_SMI, machine, (LIST, MEMORY, BOARD_POWER), (TABLE,))


def _card(reading: Reading, whole: Reading) -> Card:
    """`whole` is the card that a slice is cut from, or the reading itself."""
    said = reading.properties
    own_name = {"sgpu": reading.device_id} if "slice" in said else {}
    limit = {name: value for name, value in whole.properties.items() if name == "power_limit_watts"}
    return Card(
        physical_index=int(whole.properties["index"]),
        names=(whole.properties["name"],),
        uuid=said.get("uuid", ""),
        pci_address=whole.device_id,
        memory_bytes=reading.total_bytes,
        slice=said.get("slice", ""),
        problem=said.get("problem", ""),
        properties={**limit, **own_name},
        identity="" if "uuid" in said else own_name.get("sgpu", ""),
    )


def _maca_on_disk(machine: Machine) -> dict[str, str]:
    """`Version:2.18.0.8` or the number alone, as the toolkit's own file says it."""
    found = re.search(r"\d+(\.\d+)+", machine.read("/opt/maca/Version.txt") or "")
    return {"maca": found[0]} if found else {}
