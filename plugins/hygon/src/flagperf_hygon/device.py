"""Hygon cards. Their CPUs share the PCI vendor id; AMD's cards share the device node and, in torch, the HIP build."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flagperf.api import Device, Machine, Presence, Reading
from flagperf.errors import BadInput, ToolFailed
from flagperf.kit import (
    Card,
    Evidence,
    PciFunction,
    TorchDeviceBackend,
    ask_any,
    judge,
    make_devices,
    pci_functions,
    unlisted_card,
    with_render_node,
)
from flagperf_hygon.launcher import OTHER_VISIBILITY_VARIABLES, VISIBILITY_VARIABLE, dtk_script
from flagperf_hygon.memory import HY_SMI, JSON, TABLE, TEXT
from flagperf_hygon.smi import driver_version

PCI_VENDOR, AMD_PCI_VENDOR = "1d94", "1002"
CARD_CLASSES = ("0380", "1200")
NODES = ("/dev/kfd", "/dev/mkfd")
MODULES = ("hycu", "hydcu")
"""From driver 6.3 on, and before."""
HYHAL_LIBRARIES = ("/opt/hyhal/lib", "/usr/local/hyhal/lib", "/opt/dtk/.hyhal/lib")
LIBRARIES = tuple(f"{folder}/librocm_smi64.so" for folder in HYHAL_LIBRARIES)
UNNAMED = "Hygon card"
LOOKED_FOR = "PCI 1d94 of class 0380 or 1200, /dev/kfd, /sys/module/hycu or hydcu, hy-smi"


class HygonBackend(TorchDeviceBackend):
    vendor = "hygon"
    aliases = ("dcu",)
    title = {"en": "Hygon", "zh": "海光"}  # noqa: RUF012
    torch_type = "cuda"
    collective_backend = "nccl"
    visibility_variables = (VISIBILITY_VARIABLE,)
    precisions = ("fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
    packages = ("flash-attn",)
    tf32_switches = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
    version_fields = ("hip",)
    pci_address_call = "hipDeviceGetPCIBusId"

    def data_folder(self) -> Path:
        return Path(__file__).parent

    # --- agent ------------------------------------------------------------------------------------------------------

    def presence(self, machine: Machine) -> Presence:
        return judge(find_evidence(machine, self._known_ids()), LOOKED_FOR)

    def devices(self, machine: Machine) -> list[Device]:
        refuse_other_variables(machine.environ)
        asked = ask_any(HY_SMI, machine, JSON.cards, TEXT.cards, (TABLE,))
        refuse_amd_cards(machine, asked)
        described = sorted(asked, key=lambda reading: int(reading.device_id))
        on_bus = {function.address: function for function in cards_on_bus(machine, self._known_ids())}
        cards = [
            _card(index, reading, on_bus, _slice(machine.environ, reading)) for index, reading in enumerate(described)
        ]
        return make_devices(self, machine, [*cards, *_lost_cards(machine, cards, on_bus)])

    def versions(self, machine: Machine) -> dict[str, str]:
        found = {"driver": _driver(machine), "dtk": _dtk(machine)}
        return {name: version for name, version in found.items() if version}

    # --- worker -----------------------------------------------------------------------------------------------------

    def wrong_build(self, torch: Any) -> str:
        if getattr(torch.version, "hip", None):
            return ""
        return "torch.version.hip is not set. Install the DTK build of torch; pip's own is for other cards"

    def framework_state(self) -> dict[str, Any]:
        """With the ways that attention can take: the flash one may be missing from a DTK image without an error."""
        import torch

        kinds = ("flash", "mem_efficient", "math")
        asked = {kind: getattr(torch.backends.cuda, f"{kind}_sdp_enabled", None) for kind in kinds}  # from torch 2.0 on
        enabled = {f"sdpa.{kind}": ask() for kind, ask in asked.items() if ask is not None}
        has_flash = importlib.util.find_spec("flash_attn_2_cuda") is not None
        return {**super().framework_state(), **enabled, "flash_attn_2_cuda": "found" if has_flash else "not found"}

    def _known_ids(self) -> set[str]:
        return {pci_id for model in self.models() for pci_id in model.pci_ids}


def cards_on_bus(machine: Machine, known_ids: set[str]) -> list[PciFunction]:
    """By class or by id: a server with Hygon CPUs has dozens of other functions of this vendor."""
    functions = pci_functions(machine, PCI_VENDOR)
    return [each for each in functions if each.class_id in CARD_CLASSES or each.device_id in known_ids]


def find_evidence(machine: Machine, known_ids: set[str]) -> Evidence:
    cards = cards_on_bus(machine, known_ids)
    modules = tuple(f"/sys/module/{name}" for name in MODULES if _is_live(machine, name))
    nodes = tuple(path for path in NODES if machine.glob(path))
    if not modules and _has_amd_card(machine):
        nodes = tuple(path for path in nodes if path != "/dev/kfd")
    libraries = [path for path in LIBRARIES if machine.glob(path)]
    tool = HY_SMI.find(machine) if cards or nodes or modules else None
    return Evidence(
        bus=tuple(f"PCI {card.address} {PCI_VENDOR}:{card.device_id} class {card.class_id}" for card in cards),
        nodes=nodes,
        modules=modules,
        tools=tuple(filter(None, (*libraries, tool))),
    )


def refuse_amd_cards(machine: Machine, readings: Sequence[Reading]) -> None:
    """AMD's tool of that name has the same labels for a card's bus, power and temperature."""
    of_amd = {function.address for function in pci_functions(machine, AMD_PCI_VENDOR)}
    found = sorted(of_amd & {reading.properties.get("pci_address", "") for reading in readings})
    if found:
        raise ToolFailed(
            f"{HY_SMI.find(machine)} lists {', '.join(found)}, which is AMD's: it is AMD's rocm-smi. Put the folder of "
            "hy-smi before it on PATH"
        )


def refuse_other_variables(environ: Mapping[str, str]) -> None:
    """Passing them on or taking them away could both put workers on other cards than the user meant."""
    wanted = environ.get(VISIBILITY_VARIABLE)
    for name in OTHER_VISIBILITY_VARIABLES:
        if name in environ and (name.startswith("ROCR") or environ[name] != wanted):
            raise BadInput(
                f"{name}={environ[name]!r} is set. How it combines with {VISIBILITY_VARIABLE} on these cards is not"
                f" known: unset it, and choose cards by {VISIBILITY_VARIABLE} alone"
            )


def _has_amd_card(machine: Machine) -> bool:
    """Then /dev/kfd is AMD's, unless a Hygon driver is loaded."""
    return any(each.class_id[:2] in ("03", "12") for each in pci_functions(machine, AMD_PCI_VENDOR))


def _is_live(machine: Machine, module: str) -> bool:
    """A module that is being loaded or unloaded drives no card; one that is built in has no such file."""
    folder = f"/sys/module/{module}"
    return bool(machine.glob(folder)) and machine.read(f"{folder}/initstate") in ("live", None)


def _card(index: int, reading: Reading, on_bus: Mapping[str, PciFunction], slice_name: str) -> Card:
    """`index` is torch's: it counts the cards that it can reach from 0, whatever number the tool begins with. The table
    has no addresses: the cards are then known by the tool's number alone, and by their PCI id where all have one."""
    address, name = reading.properties.get("pci_address", ""), reading.properties.get("name", "")
    by_table = reading.properties.get("form") == "table"
    ids = {function.device_id for function in ([on_bus[address]] if address in on_bus else on_bus.values())}
    pci_id = ids.pop() if len(ids) == 1 and (by_table or address in on_bus) else ""
    properties = {
        "tool_index": reading.device_id,
        "tool_name": name,
        "pci_id": pci_id,
        "memory_missing": reading.missing.get("total_bytes", ""),
    }
    return Card(
        physical_index=index,
        names=(name or (f"Hygon {pci_id}" if pci_id else UNNAMED),),
        pci_address=address,
        pci_id=pci_id,
        memory_bytes=None if slice_name else reading.total_bytes,
        slice=slice_name,
        identity=f"hy-smi-{reading.device_id}" if by_table else "",
        properties={key: value for key, value in properties.items() if value},
    )


def _lost_cards(machine: Machine, cards: Sequence[Card], on_bus: Mapping[str, PciFunction]) -> list[Card]:
    """Cards of the bus that the tool leaves out though their node is here. The table has no addresses to compare: its
    cards are counted."""
    listed, expected = {card.pci_address for card in cards}, with_render_node(machine, on_bus.values())
    if "" in listed:
        return _lost_by_number(expected, len(cards))
    return [unlisted_card(UNNAMED, each, "hy-smi") for each in expected if each.address not in listed]


def _lost_by_number(expected: Sequence[PciFunction], num_listed: int) -> list[Card]:
    problem = (
        f"hy-smi lists {num_listed} of the {len(expected)} cards on the bus whose nodes are here "
        f"({', '.join(each.address for each in expected)}): one seems to be lost, which one cannot be told; see the "
        "kernel's log"
    )
    num_lost = len(expected) - num_listed
    return [Card(-1, (UNNAMED,), problem=problem, identity=f"unlisted-{count + 1}") for count in range(num_lost)]


def _slice(environ: Mapping[str, str], reading: Reading) -> str:
    """What the tool prints inside a slice is not known; the container toolkit's variable is."""
    slices, name = environ.get("VHCU_VISIBLE_DEVICES", ""), reading.properties.get("name", "")
    if slices:
        return f"vHCU {slices}"
    return name if "vhcu" in name.lower() else ""


def _driver(machine: Machine) -> str:
    for module in MODULES:
        version = machine.read(f"/sys/module/{module}/version")
        if version:
            return version
    try:
        return driver_version(HY_SMI.run(machine, ("--showdriverversion",)))
    except ToolFailed:
        return ""


def _dtk(machine: Machine) -> str:
    """The release whose environment workers get, as its own file says it."""
    script = dtk_script(machine)
    version = script.with_name(".dtk_version") if script else None
    return version.read_text().strip().removeprefix("DTK-") if version and version.is_file() else ""
