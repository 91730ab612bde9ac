"""Lumen cards: how they are found, what they are, how a worker uses one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flagperf.api import Card, Device, Evidence, Machine, Presence, TorchDeviceBackend, judge, make_devices, pci_functions
from flagperf_lumen import smi

PCI_VENDOR = "ffff"  # Yours: the PCI vendor id of your cards, and below the class that tells them from bridges


class LumenBackend(TorchDeviceBackend):
    vendor = "lumen"
    title = {"en": "Lumen", "zh": "Lumen"}
    torch_type = "cuda"  # Yours: what torch.device() takes on your cards, and the backend of its collectives
    collective_backend = "nccl"
    visibility_variables = ("LUMEN_VISIBLE_DEVICES",)
    precisions = ("fp32", "fp16", "bf16", "amp-fp16", "amp-bf16")

    def data_folder(self) -> Path:
        return Path(__file__).parent

    def presence(self, machine: Machine) -> Presence:
        on_bus = [each for each in pci_functions(machine, PCI_VENDOR) if each.class_id in ("0302", "1200")]
        nodes = machine.glob("/dev/lumen[0-9]*")
        tool = smi.TOOL.find(machine)
        evidence = Evidence(
            bus=tuple(f"PCI {each.address} {PCI_VENDOR}:{each.device_id}" for each in on_bus),
            nodes=tuple(f"/dev/{node.name}" for node in nodes),
            modules=("module lumen",) if machine.glob("/sys/module/lumen") else (),
            tools=(tool,) if tool else (),
        )
        return judge(evidence, f"PCI {PCI_VENDOR}, /dev/lumen*, lumen-smi")

    def devices(self, machine: Machine) -> list[Device]:
        readings = smi.parse_query(smi.TOOL.run(machine, smi.QUERY))
        return make_devices(self, machine, [_card(reading.properties, reading.total_bytes) for reading in readings])

    def versions(self, machine: Machine) -> dict[str, str]:
        version = machine.read("/sys/module/lumen/version")
        return {"driver": version} if version else {}

    def wrong_build(self, torch: Any) -> str:
        return ""  # Yours: why torch is not your build, e.g. a missing attribute of torch.version


def _card(said: dict[str, str], total_bytes: int | None) -> Card:
    index, names = int(said["index"]), (said.get("name", "Lumen card"),)
    return Card(index, names, said.get("uuid", ""), said.get("pci", ""), memory_bytes=total_bytes)
