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
from flagperf.kit import Card, Evidence, PciFunction, TorchDeviceBackend, judge, make_devices, pci_functions
from flagperf_nvidia import smi
from flagperf_nvidia.nvml import BLOCKED, NO_PERMISSION, VENDOR_ID, Nvml, NvmlFailed, binding

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
)
AMPERE = (8, 0)
_MODULE_VERSION = re.compile(r"Kernel Module(?: +for \S+)? +([0-9]+(?:\.[0-9]+)+)")
"""The open module says for which architecture it is before its version: `Open Kernel Module for x86_64  550.54.14`."""
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
    looked_for = "PCI 10de of class 03xx, /dev/nvidiactl with /dev/nvidia0.., the kernel module nvidia"
    return judge(Evidence(bus, nodes, (*modules, *traces), _software(machine)), looked_for)


def _on_bus(machine: Machine) -> list[PciFunction]:
    """Of class 03xx: the vendor's switches and audio functions are no cards."""
    return [each for each in pci_functions(machine, VENDOR_ID) if each.class_id.startswith("03")]


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
    """From NVML, else from nvidia-smi."""
    try:
        with Nvml() as nvml:
            return _name_lost_cards(_nvml_cards(nvml), _on_bus(machine))
    except ToolFailed as nvml_error:
        try:
            return _smi_cards(machine)
        except ToolFailed as smi_error:
            raise ToolFailed(f"neither NVML nor nvidia-smi lists the cards: {nvml_error}; {smi_error}") from None


def _nvml_cards(nvml: Nvml) -> list[Card]:
    found: list[Card] = []
    refused = []
    for index in range(nvml.count()):
        try:
            found += _nvml_card_or_slices(nvml, index)
        except NvmlFailed as error:
            if error.code in (NO_PERMISSION, BLOCKED):  # a card of the machine that is not mapped for us
                refused.append(str(error))
            else:
                found.append(Card(index, ("NVIDIA card",), problem=str(error)))
    if refused and not found:
        raise ToolFailed(f"NVML counts {len(refused)} cards and shows none of them to this user: {refused[0]}")
    return found


def _nvml_card_or_slices(nvml: Nvml, index: int) -> list[Card]:
    handle = nvml.handle(index)
    pci = nvml.pci(handle)
    properties = {"source": "nvml", **_limits(nvml, handle)}
    card = Card(index, (nvml.name(handle),), nvml.uuid(handle), pci.address, pci.device_id, properties=properties)
    if not nvml.is_sliced(handle):
        return [_with_memory(nvml, handle, card)]
    slices = [_with_memory(nvml, part, _nvml_slice(nvml, part, card)) for part in nvml.slices(handle)]
    return slices or [msgspec.structs.replace(card, problem=NO_SLICES)]


def _nvml_slice(nvml: Nvml, handle: Any, card: Card) -> Card:
    """NVML names a slice `<card> MIG 1g.5gb`. The card's PCI id would stand for the whole card's model."""
    name = nvml.name(handle)
    words = "MIG" + name.rpartition(" MIG")[2] if " MIG" in name else "MIG"
    properties = {**card.properties, "card": card.uuid}
    return msgspec.structs.replace(
        card, names=(name,), uuid=nvml.uuid(handle), pci_id="", slice=words, properties=properties
    )


def _with_memory(nvml: Nvml, handle: Any, card: Card) -> Card:
    try:
        memory = nvml.memory(handle)
    except NvmlFailed as error:
        return msgspec.structs.replace(card, problem=str(error))
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


def _name_lost_cards(cards: Sequence[Card], on_bus: Sequence[PciFunction]) -> list[Card]:
    """NVML gives a card that it cannot reach no name: where the bus has as many others, they are these."""
    lost = [card for card in cards if not card.uuid and not card.pci_address]
    seen = {card.pci_address for card in cards}
    others = [each.address for each in on_bus if each.address not in seen]
    addresses = dict(zip([card.physical_index for card in lost], others, strict=False))
    named = []
    for card in cards:
        if card in lost and len(others) == len(lost):
            card = msgspec.structs.replace(card, pci_address=addresses[card.physical_index])
        elif card in lost:
            card = msgspec.structs.replace(card, uuid=f"nvml-index-{card.physical_index}")
        named.append(card)
    return named


def _smi_cards(machine: Machine) -> list[Card]:
    cards = smi.parse_query_gpu(smi.NVIDIA_SMI.run(machine, smi.QUERY_GPU))
    listed = smi.parse_list(smi.NVIDIA_SMI.run(machine, smi.LIST))
    found: list[Card] = []
    for reading in cards:
        card = _smi_card(reading)
        slices = [each for each in listed if each.properties.get("card") == card.uuid]
        if reading.properties.get("mig_mode") == "Enabled" and not slices:
            card = msgspec.structs.replace(card, problem=NO_SLICES)
        found += [_smi_slice(card, each) for each in slices] or [card]
    return found


def _smi_card(reading: Reading) -> Card:
    """A lost card has nothing but its address and the tool's words."""
    told = reading.properties
    limits = {name: value for name, value in told.items() if name.startswith("power_")}
    return Card(
        int(told.get("index", "-1")),
        (told.get("name", "NVIDIA card"),),
        told.get("uuid", ""),
        told.get("pci_address", reading.device_id),
        memory_bytes=reading.total_bytes,
        problem="" if told else reading.missing["used_bytes"],
        properties={"source": "nvidia-smi", **limits},
    )


def _smi_slice(card: Card, listed: Reading) -> Card:
    """nvidia-smi's csv has no memory of slices: it is not known, and not the card's."""
    told = listed.properties
    properties = {**card.properties, "card": card.uuid}
    return msgspec.structs.replace(
        card, names=(told["name"],), uuid=told["uuid"], slice=told["slice"], memory_bytes=None, properties=properties
    )
