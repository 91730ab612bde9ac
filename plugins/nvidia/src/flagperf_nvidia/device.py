"""NVIDIA cards: what says that they are here, which they are, and how a worker uses one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import Device, Machine, Precision, Presence, Reading
from flagperf.errors import ToolFailed, Unsupported
from flagperf.kit import (
    Card,
    Evidence,
    PciFunction,
    TorchDeviceBackend,
    ask_all,
    judge,
    make_devices,
    pci_functions,
    unlisted_card,
    usable_nodes,
)
from flagperf_nvidia import smi
from flagperf_nvidia.nvml import (
    BLOCKED,
    FUNCTION_MISSING,
    NO_PERMISSION,
    NOT_SUPPORTED,
    VENDOR_ID,
    Nvml,
    NvmlFailed,
    binding,
)

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
)
WSL_NODE = "/dev/dxg"
WSL_LIBRARY = "/usr/lib/wsl/lib/libnvidia-ml.so.1"
"""Windows maps its own driver's libraries into WSL. The node is every vendor's; this library is NVIDIA's."""
AMPERE = (8, 0)
_MODULE_VERSION = re.compile(r"Kernel Module(?: +for \S+)? +([0-9]+(?:\.[0-9]+)+)")
"""The open module says for which architecture it is before its version: `Open Kernel Module for x86_64  550.54.14`."""
_MINOR = re.compile(r"Device Minor:\s*([0-9]+)")
_EXCLUDED = re.compile(r"GPU Excluded:\s*Yes")
_COMPUTE_INSTANCE = re.compile(r"MIG [0-9]+c\.([0-9]+g\..+)")
"""`1c.3g.20gb` is one of several parts that compute in the memory of a `3g.20gb`."""
UNNAMED = "NVIDIA card"
NO_SLICES = "MIG mode is on and it has no slices: create some, or turn MIG mode off"


class NvidiaBackend(TorchDeviceBackend):
    vendor = "nvidia"
    title = {"en": "NVIDIA", "zh": "英伟达"}  # noqa: RUF012
    torch_type = "cuda"
    collective_backend = "nccl"
    visibility_variables = ("CUDA_VISIBLE_DEVICES",)
    precisions = ("fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
    packages = ("nvidia-ml-py", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
    tf32_switches = ("cuda.matmul.allow_tf32", "cudnn.allow_tf32")
    version_fields = ("cuda",)
    pci_address_call = "cudaDeviceGetPCIBusId"

    def data_folder(self) -> Path:
        return Path(__file__).parent

    # --- agent ------------------------------------------------------------------------------------------------------

    def presence(self, machine: Machine) -> Presence:
        return presence(machine)

    def devices(self, machine: Machine) -> list[Device]:
        return make_devices(self, machine, find_cards(machine))

    def versions(self, machine: Machine) -> dict[str, str]:
        """`driver`, `cuda_driver` (the newest CUDA it supports; the worker records torch's own), and who says so."""
        try:
            with Nvml() as nvml:
                return {"driver": nvml.driver_version(), "cuda_driver": nvml.cuda_version(), "nvml": binding()}
        except ToolFailed:
            module = _MODULE_VERSION.search(machine.read("/proc/driver/nvidia/version") or "")
            return {"driver": module[1]} if module else {}

    # --- worker -----------------------------------------------------------------------------------------------------

    def wrong_build(self, torch: Any) -> str:
        """The builds of three other vendors answer to torch.cuda as well."""
        if getattr(torch.version, "hip", None):
            return f"it is built for HIP {torch.version.hip}"
        if hasattr(torch.version, "maca"):
            return "it is built for MACA"
        if not torch.version.cuda:
            return "it is built without CUDA; install one that has it"
        if importlib.util.find_spec("torch_xmlir") and os.environ.get("DISABLE_XPYTORCH") != "1":
            return "torch_xmlir, which is installed beside it, patches it for Kunlunxin cards: set DISABLE_XPYTORCH=1"
        return ""

    def set_precision(self, precision: Precision) -> None:
        capability = self._module.get_device_capability()
        if precision.compute in ("tf32", "bfloat16") and tuple(capability) < AMPERE:
            card = f"{self._module.get_device_name()} (compute capability {'.'.join(map(str, capability))})"
            raise Unsupported(f"{card} does not compute in {precision.name}: choose fp32, fp16 or amp-fp16")
        super().set_precision(precision)

    def framework_state(self) -> dict[str, Any]:
        state = super().framework_state()
        with contextlib.suppress(AttributeError, RuntimeError):  # a torch without it
            state["nccl"] = ".".join(map(str, self._module.nccl.version()))
        return state


# --- presence -------------------------------------------------------------------------------------------------------


def presence(machine: Machine) -> Presence:
    """An answer from NVML is no evidence: another vendor's library gives it as well."""
    cards, control = _paths(machine, "/dev/nvidia[0-9]*"), _paths(machine, "/dev/nvidiactl")
    # One without the other cannot be used: then it is the trace of a driver, like a module.
    nodes, traces = ((*control, *cards), ()) if cards and control else ((), (*control, *cards))
    modules = _paths(machine, "/sys/module/nvidia") + _paths(machine, "/proc/driver/nvidia/version")
    bus = tuple(f"PCI {each.address} {VENDOR_ID}:{each.device_id}" for each in _on_bus(machine))
    wsl = _paths(machine, WSL_NODE) + _paths(machine, WSL_LIBRARY)
    if wsl == (WSL_NODE, WSL_LIBRARY) and not bus and not nodes:
        return Presence("present", wsl, "by WSL's node and NVIDIA's library there; WSL shows no card on the bus")
    looked_for = (
        "PCI 10de of class 03xx, /dev/nvidiactl with /dev/nvidia0.., the kernel module nvidia; "
        f"in WSL {WSL_NODE} with {WSL_LIBRARY}"
    )
    return judge(Evidence(bus, nodes, (*modules, *traces), _software(machine)), looked_for)


def _on_bus(machine: Machine) -> list[PciFunction]:
    """Of class 03xx: the vendor's switches and audio functions are no cards."""
    return [each for each in pci_functions(machine, VENDOR_ID) if each.class_id.startswith("03")]


def _expected(machine: Machine) -> list[PciFunction]:
    """The cards on the bus that are ours: sysfs also shows those that are not mapped into the container, that another
    job has, or that another driver holds. The driver says which node a card has, and whether an administrator has
    excluded it; where its list is not here, all of them are ours if there is a node for each."""
    nodes, on_bus, told = _nodes(machine), _on_bus(machine), _told_by_driver(machine)
    minors = {place: _MINOR.search(text) for place, text in told.items() if text and not _EXCLUDED.search(text)}
    if not told:
        return on_bus if len(nodes) >= len(on_bus) else []
    return [each for each in on_bus if (minor := minors.get(each.address)) and f"nvidia{minor[1]}" in nodes]


def _nodes(machine: Machine) -> set[str]:
    return usable_nodes(machine, "/dev/nvidia[0-9]*")


def _told_by_driver(machine: Machine) -> dict[str, str | None]:
    """By address, what it says of each card; nothing where its list is not mapped into the container."""
    folder = "/proc/driver/nvidia/gpus"
    names = [path.name for path in machine.glob(f"{folder}/*")]
    return {name.lower(): machine.read(f"{folder}/{name}/information") for name in names}


def _software(machine: Machine) -> tuple[str, ...]:
    inside = [machine.root / folder.lstrip("/") for folder in LIBRARY_FOLDERS]
    folders = [*map(Path, filter(None, machine.environ.get("LD_LIBRARY_PATH", "").split(":"))), *inside]
    libraries = [str(path) for folder in folders if (path := folder / "libnvidia-ml.so.1").exists()]
    tool = smi.NVIDIA_SMI.find(machine)
    return (*libraries[:1], *([tool] if tool else []))


def _paths(machine: Machine, pattern: str) -> tuple[str, ...]:
    return tuple(f"/{path.relative_to(machine.root)}" for path in machine.glob(pattern))


# --- cards ----------------------------------------------------------------------------------------------------------


def find_cards(machine: Machine) -> list[Card]:
    """From NVML, else from nvidia-smi. Either may leave out a card that is lost: the bus has it."""
    try:
        with Nvml() as nvml:
            found, num_refused = _nvml_cards(nvml)
            return _with_lost_cards(machine, found, num_refused, "NVML")
    except ToolFailed as nvml_error:
        try:
            return _with_lost_cards(machine, _smi_cards(machine), 0, "nvidia-smi")
        except ToolFailed as smi_error:
            raise ToolFailed(f"neither NVML nor nvidia-smi lists the cards: {nvml_error}; {smi_error}") from None


def _with_lost_cards(machine: Machine, cards: Sequence[Card], num_refused: int, by: str) -> list[Card]:
    placed = _with_cards_of_the_bus(cards, _expected(machine), num_refused, by)
    return [*placed, *_lost_by_number(machine, placed, num_refused, by)]


def _lost_by_number(machine: Machine, cards: Sequence[Card], num_refused: int, by: str) -> list[Card]:
    """Where some of the bus's cards have no node here and the driver's list is not here either, nothing says whose the
    nodes are: that there are more nodes than cards is all that can be known."""
    nodes = _nodes(machine)
    if _told_by_driver(machine) or len(nodes) >= len(_on_bus(machine)):
        return []
    num_listed = len({card.pci_address or card.physical_index for card in cards})
    problem = (
        f"{by} lists {num_listed} of the {len(nodes)} cards whose nodes are here "
        f"({', '.join(f'/dev/{name}' for name in sorted(nodes))}): one seems to be lost, which one cannot be told; see "
        "the kernel's log"
    )
    num_lost = len(nodes) - num_listed - num_refused
    return [Card(-1, (UNNAMED,), problem=problem, identity=f"unlisted-{count + 1}") for count in range(num_lost)]


def _with_cards_of_the_bus(
    cards: Sequence[Card], expected: Sequence[PciFunction], num_refused: int, by: str
) -> list[Card]:
    """With every card of the bus that is not listed. A listed one that has no name is one of these: where there are as
    many of them, in their order. Those that are refused to us have none either."""
    nameless = [card for card in cards if not card.uuid and not card.pci_address]
    named = {card.pci_address for card in cards}
    others = [each for each in expected if each.address not in named]
    if len(others) <= len(nameless) + num_refused:
        places = [each.address for each in others] if len(others) == len(nameless) else []
        return [_placed(card, nameless, places) for card in cards]
    lost = [unlisted_card(UNNAMED, each, by) for each in others]
    said = "".join(f"; {card.problem}" for card in nameless[:1])
    return [
        *(card for card in cards if card not in nameless),
        *(msgspec.structs.replace(card, problem=card.problem + said) for card in lost),
    ]


def _placed(card: Card, nameless: Sequence[Card], places: Sequence[str]) -> Card:
    if card not in nameless:
        return card
    if places:
        return msgspec.structs.replace(card, pci_address=places[nameless.index(card)])
    return msgspec.structs.replace(card, identity=f"nvml-index-{card.physical_index}")


# --- cards by NVML --------------------------------------------------------------------------------------------------


def _nvml_cards(nvml: Nvml) -> tuple[list[Card], int]:
    """And the number of cards of the machine that are not mapped for us."""
    found: list[Card] = []
    refused = []
    for index in range(nvml.count()):
        try:
            found += _nvml_card_or_slices(nvml, index)
        except NvmlFailed as error:
            if error.code in (NO_PERMISSION, BLOCKED):
                refused.append(str(error))
            else:
                found.append(Card(index, (UNNAMED,), problem=str(error)))
    if refused and not found:
        raise ToolFailed(f"NVML counts {len(refused)} cards and shows none of them to this user: {refused[0]}")
    return found, len(refused)


def _nvml_card_or_slices(nvml: Nvml, index: int) -> list[Card]:
    handle = nvml.handle(index)
    pci = nvml.pci(handle)
    uuid, name = nvml.uuid(handle), nvml.name(handle)
    card = Card(index, (name,), uuid, pci.address, pci.device_id, properties={"source": "nvml"})
    try:
        return _nvml_parts(nvml, handle, card)
    except NvmlFailed as error:
        return [msgspec.structs.replace(card, problem=str(error))]


def _nvml_parts(nvml: Nvml, handle: Any, card: Card) -> list[Card]:
    """The card, or its slices: they have its problem."""
    properties = {**card.properties, **_limits(nvml, handle)}
    card = msgspec.structs.replace(card, problem=nvml.trouble(handle), properties=properties)
    if not nvml.is_sliced(handle):
        return [_with_memory(nvml, handle, card)]
    parts = nvml.slices(handle)
    instances = [nvml.gpu_instance(part) for part in parts]
    shared = [instance is not None and instances.count(instance) > 1 for instance in instances]
    slices = [
        _with_memory(nvml, part, _nvml_slice(nvml, part, card, is_shared))
        for part, is_shared in zip(parts, shared, strict=True)
    ]
    return slices or [msgspec.structs.replace(card, problem=card.problem or NO_SLICES)]


def _nvml_slice(nvml: Nvml, handle: Any, card: Card, is_shared: bool) -> Card:
    """NVML names a slice `<card> MIG 1g.5gb`. The card's PCI id would stand for the whole card's model."""
    name = nvml.name(handle)
    words = "MIG" + name.rpartition(" MIG")[2] if " MIG" in name else "MIG"
    properties = {**card.properties, "card": card.uuid}
    return msgspec.structs.replace(
        card,
        names=(name,),
        uuid=nvml.uuid(handle),
        pci_id="",
        slice=_slice_words(words, is_shared),
        properties=properties,
    )


def _slice_words(words: str, is_shared: bool = False) -> str:
    """Compute instances of one GPU instance have one memory: what one of them uses, the others' figures hold too."""
    part = _COMPUTE_INSTANCE.fullmatch(words)
    if part is None and not is_shared:
        return words
    whole = f"its {part[1]}" if part else "its GPU instance"
    return f"{words}, memory shared with the other compute instances of {whole}"


def _with_memory(nvml: Nvml, handle: Any, card: Card) -> Card:
    """A card whose memory is the host's cannot say how much it has, and can be used."""
    try:
        memory = nvml.memory(handle)
    except NvmlFailed as error:
        if error.code in (NOT_SUPPORTED, FUNCTION_MISSING):
            return msgspec.structs.replace(card, properties={**card.properties, "memory_missing": str(error)})
        return msgspec.structs.replace(card, problem=card.problem or str(error))
    properties = {**card.properties, "memory_form": memory.form}
    return msgspec.structs.replace(card, memory_bytes=memory.total_bytes, properties=properties)


def _limits(nvml: Nvml, handle: Any) -> dict[str, str]:
    """A limit below the default makes a card slower. What cannot be read is left out."""
    asked: dict[str, Callable[[Any], float]] = {
        "power_limit_watts": nvml.power_limit_watts,
        "power_default_limit_watts": nvml.power_default_limit_watts,
    }
    limits = {}
    for name, ask in asked.items():
        with contextlib.suppress(NvmlFailed):
            limits[name] = f"{ask(handle):g}"
    return limits


# --- cards by nvidia-smi --------------------------------------------------------------------------------------------


def _smi_cards(machine: Machine) -> list[Card]:
    readings = ask_all(smi.NVIDIA_SMI, machine, (smi.CARDS, smi.ROWS, smi.PAGES))
    listed = smi.LISTED.ask(smi.NVIDIA_SMI, machine)
    found: list[Card] = []
    for reading in readings:
        card = _smi_card(reading)
        slices = [each for each in listed if card.uuid and each.properties.get("card") == card.uuid]
        if reading.properties.get("mig_mode") == "Enabled" and not slices:
            card = msgspec.structs.replace(card, problem=card.problem or NO_SLICES)
        found += [_smi_slice(card, each) for each in slices] or [card]
    return [*found, *_only_listed(listed, readings)]


def _only_listed(listed: Sequence[Reading], readings: Sequence[Reading]) -> list[Card]:
    """Cards that -L names and the csv does not. Lost ones, which the two may name differently, only where the csv names
    none."""
    known = {key for reading in readings for key in (reading.device_id, reading.properties.get("index"))}
    some_lost = any("uuid" not in reading.properties for reading in readings)
    cards = [each for each in listed if not {each.device_id, each.properties.get("index", "no index")} & known]
    unknown = [each for each in cards if "uuid" in each.properties or not some_lost]
    return [
        msgspec.structs.replace(_smi_card(each), problem=each.properties.get("problem", "only nvidia-smi -L lists it"))
        for each in unknown
    ]


def _smi_card(reading: Reading) -> Card:
    """A lost card has nothing but its address or its index, and the tool's words."""
    told = reading.properties
    properties = {name: value for name, value in told.items() if name.startswith("power_")}
    if "total_bytes" in reading.missing:
        properties["memory_missing"] = reading.missing["total_bytes"]
    return Card(
        int(told.get("index", "-1")),
        (told.get("name", UNNAMED),),
        told.get("uuid", ""),
        told.get("pci_address", ""),
        memory_bytes=reading.total_bytes,
        problem=told.get("problem", ""),
        properties={"source": "nvidia-smi", **properties},
    )


def _smi_slice(card: Card, listed: Reading) -> Card:
    """nvidia-smi's csv has no memory of slices: it is not known, and not the card's."""
    told = listed.properties
    properties = {**card.properties, "card": card.uuid, "memory_missing": smi.NOT_OF_A_SLICE}
    return msgspec.structs.replace(
        card,
        names=(told["name"],),
        uuid=told["uuid"],
        slice=_slice_words(told["slice"]),
        memory_bytes=None,
        properties=properties,
    )
