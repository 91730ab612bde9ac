"""Kunlunxin cards. Their torch is a stock build that torch_xmlir patches when it is imported. It calls every card
`GPU`, so that model and memory come from xpu-smi."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import Device, Machine, Presence, Reading
from flagperf.errors import BadInput
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
    usable_nodes,
)
from flagperf_kunlun.launcher import VISIBILITY_VARIABLES
from flagperf_kunlun.memory import CONTROL_NODE, MACHINE, PCI_VENDOR, TABLE, XPU_SMI, may_be_kunlun
from flagperf_kunlun.smi import parse_query

CARD_IDS = ("3684", "3685", "3688")
"""K and R series, their virtual functions, P800 OAM. Other ids of this vendor are other things: 1380 is a disk."""
VIRTUAL_FUNCTION_ID = "3685"
PCIE_P800 = ("2057", "3686")
"""What a P800 PCIe says of itself. The vendor id is nobody's in the public list, so it counts with the node only."""
MODULES = ("kunlun", "xpu_driver")
"""From XRE 4.0 on, and before."""
UNNAMED = "Kunlunxin card"
LOOKED_FOR = "PCI 1d22:3684, 3685 or 3688, /dev/xpuctrl and /dev/xpu0, /sys/module/kunlun, xpu-smi"

DETAILS = Query(("-q",), parse_query, ())

RUNTIME_VARIABLES = (
    "CUDART_DUMMY_REGISTER",
    "CUDART_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "XPU_FORCE_SHARED_DEVICE_CONTEXT",
)
"""The runtime sets these by itself where they are unset."""
MOCK_COMPILE = "XMLIR_ENABLE_MOCK_TORCH_COMPILE"


class KunlunBackend(TorchDeviceBackend):
    vendor = "kunlun"
    aliases = ("kunlunxin",)
    title = {"en": "Kunlunxin", "zh": "昆仑芯"}  # noqa: RUF012
    torch_type = "cuda"
    collective_backend = "nccl"
    visibility_variables = VISIBILITY_VARIABLES
    precisions = ("fp32", "fp16", "bf16", "amp-fp16", "amp-bf16")
    packages = ("torch-xmlir",)
    import_first = ("torch_xmlir",)
    version_fields = ("cuda",)
    pci_address_call = "cudaDeviceGetPCIBusId"

    def data_folder(self) -> Path:
        return Path(__file__).parent

    # --- agent ------------------------------------------------------------------------------------------------------

    def presence(self, machine: Machine) -> Presence:
        evidence = find_evidence(machine)
        presence = judge(evidence, LOOKED_FOR)
        missing = _missing_nodes(evidence)
        if presence.state == "present" and missing:
            return Presence("partial", presence.evidence, f"{missing} is not here: map it into the container")
        return presence

    def devices(self, machine: Machine) -> list[Device]:
        refuse_bad_variables(machine.environ)
        readings = ask_any(XPU_SMI, machine, (MACHINE, DETAILS), (TABLE, DETAILS))
        on_bus = {function.address: function for function in cards_on_bus(machine)}
        told = [*ask_first(XPU_SMI, machine, (TABLE,)), *readings]
        problems = _problems(machine, told)
        cards = [_card(each, on_bus, problems.get(each.properties["index"], "")) for each in readings]
        return make_devices(self, machine, [*cards, *_lost_cards(machine, cards, _errors_of_no_card(machine, told))])

    def versions(self, machine: Machine) -> dict[str, str]:
        """By the table alone: what -q calls XPU-RT has another number, whose meaning is not known."""
        properties = next((reading.properties for reading in ask_first(XPU_SMI, machine, (TABLE,))), {})
        found = {"driver": properties.get("driver", ""), "xre": properties.get("runtime", "")}
        return {name: version for name, version in found.items() if version}

    # --- worker -----------------------------------------------------------------------------------------------------

    def wrong_build(self, torch: Any) -> str:
        """torch_xmlir only warns where it cannot patch torch, and its libraries may show cards all the same."""
        if os.environ.get("DISABLE_XPYTORCH") == "1":
            return "DISABLE_XPYTORCH=1 turns torch_xmlir off; unset it"
        if torch.cuda.device_count() == 0:
            return "torch_xmlir is loaded, but torch sees no card: see its warnings in the worker's log"
        if next(marks_of_the_patch(torch), None) is None:
            return "torch_xmlir is loaded, but has not patched torch: see its warnings in the worker's log"
        return ""

    def framework_state(self) -> dict[str, Any]:
        """With what torch_xmlir changes without a word: a compiled model runs eagerly unless it was told otherwise."""
        import torch

        mocked = os.environ.get(MOCK_COMPILE, "true").lower() in ("true", "1")
        variables = [name for name in sorted(os.environ) if name.startswith("XMLIR_") or name in RUNTIME_VARIABLES]
        return {
            **super().framework_state(),
            "torch.compile": "does nothing: models run eagerly" if mocked else "compiles",
            "torch_xmlir.patched": ", ".join(marks_of_the_patch(torch)),
            "cudnn.enabled": torch.backends.cudnn.enabled,
            **{name: os.environ[name] for name in variables},
        }


def marks_of_the_patch(torch: Any) -> Iterator[str]:
    """What torch_xmlir changes in torch, as far as it can be seen. Releases may differ in some; a torch that has none
    was not patched. The card is asked last: who needs one mark need not touch it."""
    if torch.nn.functional.linear is not torch._C._nn.linear:
        yield "nn.functional.linear"
    if torch.nn.Linear.__module__ != "torch.nn.modules.linear":
        yield "nn.Linear"
    if not torch.backends.cudnn.enabled:
        yield "cudnn off"
    if torch.cuda.get_device_name() == "GPU":
        yield "device name"


def cards_on_bus(machine: Machine) -> list[PciFunction]:
    cards = [each for each in pci_functions(machine, PCI_VENDOR) if each.device_id in CARD_IDS]
    if machine.glob(CONTROL_NODE):
        vendor_id, device_id = PCIE_P800
        cards += [each for each in pci_functions(machine, vendor_id) if each.device_id == device_id]
    return cards


def find_evidence(machine: Machine) -> Evidence:
    nodes = [CONTROL_NODE, *(f"/dev/{path.name}" for path in machine.glob("/dev/xpu[0-9]*"))]
    tool = XPU_SMI.find(machine) if may_be_kunlun(machine) else None
    return Evidence(
        bus=tuple(f"PCI {card.address} {card.vendor_id}:{card.device_id}" for card in cards_on_bus(machine)),
        nodes=tuple(path for path in nodes if machine.glob(path)),
        modules=tuple(f"/sys/module/{name}" for name in MODULES if machine.glob(f"/sys/module/{name}")),
        tools=(*_in_error(machine).values(), *filter(None, [tool])),
    )


def refuse_bad_variables(environ: Mapping[str, str]) -> None:
    """The collective library does not start with a word where it expects a level."""
    level = environ.get("BKCL_DEBUG", "0")
    if not level.isdigit():
        raise BadInput(f"BKCL_DEBUG={level!r} is set, and must be a number: unset it, or use 0 or 1")


def _missing_nodes(evidence: Evidence) -> str:
    if CONTROL_NODE not in evidence.nodes:
        return CONTROL_NODE
    return "" if len(evidence.nodes) > 1 else "/dev/xpu0 or another card's node"


def _in_error(machine: Machine) -> dict[str, str]:
    """By the number of the node /dev/xpuN: what the driver says of cards that are in error."""
    states = [path for root in ("xpu", "kunlun") for path in machine.glob(f"/proc/{root}/dev[0-9]*/state")]
    paths = {path.parent.name.removeprefix("dev"): f"/{path.relative_to(machine.root)}" for path in states}
    return {number: f"{path} is ERROR" for number, path in paths.items() if machine.read(path) == "ERROR"}


def _problems(machine: Machine, told: Sequence[Reading]) -> dict[str, str]:
    """By the tool's number: what -q or the table says, and the state of the card's node."""
    numbers = _tool_numbers(told)
    by_tool = {each.properties["index"]: each.properties["problem"] for each in told if "problem" in each.properties}
    by_driver = {numbers[node]: problem for node, problem in _in_error(machine).items() if node in numbers}
    return {**by_tool, **by_driver}


def _tool_numbers(told: Sequence[Reading]) -> dict[str, str]:
    """By the number of a card's node, which may differ from the tool's: -q tells it, or the table of XRE 4."""
    return {each.properties["node"]: each.properties.get("index", "") for each in told if "node" in each.properties}


def _errors_of_no_card(machine: Machine, told: Sequence[Reading]) -> dict[str, str]:
    """By its node, for nodes that are ours: what is in error and is no card of the tool's, as far as it tells."""
    numbers, nodes = _tool_numbers(told), usable_nodes(machine, "/dev/xpu[0-9]*")
    if {each.properties["index"] for each in told} <= set(numbers.values()):
        why = "xpu-smi lists no card with this node"
    else:
        why = "xpu-smi does not tell which card has this node: one that it lists, or a lost one"
    errors = {number: problem for number, problem in _in_error(machine).items() if number not in numbers}
    return {
        f"/dev/xpu{number}": f"{problem} (/dev/xpu{number}), and {why}"
        for number, problem in errors.items()
        if f"xpu{number}" in nodes
    }


def _lost_cards(machine: Machine, cards: Sequence[Card], errors: Mapping[str, str]) -> list[Card]:
    """Cards of the bus that the tool leaves out, if there is a node for each: a container shows the host's bus, and the
    nodes of its own cards only. `errors`, by node, are theirs as far as is known; without such a card, a node in error
    stands for its own. Where the bus does not tell, more nodes than cards still say that some are lost."""
    listed = {card.pci_address for card in cards}
    others = [each for each in cards_on_bus(machine) if each.address not in listed]
    nodes = sorted(usable_nodes(machine, "/dev/xpu[0-9]*"))
    if not others or len(cards) + len(others) > len(nodes):
        log = "; see the kernel's log"
        in_error = [Card(-1, (UNNAMED,), problem=problem + log, identity=node) for node, problem in errors.items()]
        return [*in_error, *_lost_by_number(nodes, len(cards), len(errors))]
    said = "".join(f"; {problem}" for problem in errors.values())
    lost = [unlisted_card(UNNAMED, each, "xpu-smi") for each in others]
    return [msgspec.structs.replace(card, problem=card.problem + said) for card in lost]


def _lost_by_number(nodes: Sequence[str], num_listed: int, num_told: int) -> list[Card]:
    """Every device of the tool has a node of its own: the two of a K200, and each virtual function."""
    problem = (
        f"xpu-smi lists {num_listed} of the {len(nodes)} cards whose nodes are here "
        f"({', '.join(f'/dev/{name}' for name in nodes)}): one seems to be lost, which one cannot be told; see the "
        "kernel's log"
    )
    num_lost = len(nodes) - num_listed - num_told
    return [Card(-1, (UNNAMED,), problem=problem, identity=f"unlisted-{count + 1}") for count in range(num_lost)]


def _card(reading: Reading, on_bus: Mapping[str, PciFunction], problem: str) -> Card:
    said = reading.properties
    name, function = said.get("name", UNNAMED), on_bus.get(said["pci_address"])
    pci_id = function.device_id if function else ""
    return Card(
        physical_index=int(said["index"]),
        names=(name,),
        uuid=said.get("uuid", ""),
        pci_address=said["pci_address"],
        pci_id=pci_id,
        memory_bytes=reading.total_bytes,
        slice=_slice(name, function),
        problem=problem,
        properties={key: said[key] for key in ("serial", "chip", "firmware", "power_limit_watts") if key in said}
        | ({"pci_id": pci_id} if pci_id else {}),
        identity=_identity(reading),
    )


def _identity(reading: Reading) -> str:
    """Of a device that shares its address with another: the table, unlike -m, does not say which chip it is."""
    said = reading.properties
    if reading.device_id == said["pci_address"]:
        return ""
    return (
        f"{said.get('serial', '')}/device {said['index']}" if reading.device_id == said["index"] else reading.device_id
    )


def _slice(name: str, function: PciFunction | None) -> str:
    """With SR-IOV the tool lists virtual functions with memory of their own, and what is left of the card."""
    if "-VF" in name or (function is not None and function.device_id == VIRTUAL_FUNCTION_ID):
        return f"virtual function {name}"
    return f"{name}, what its virtual functions leave" if name.endswith("-PF") else ""
