"""The adapter's side of the cards. Nothing here is special: it is what a vendor with its own torch device writes."""

from __future__ import annotations

import os

from flagperf.api import Device, Machine, Peak, Presence
from flagperf.kit import TorchDeviceBackend, visible_devices
from flagperf_nova.driver import MACHINE, read_cards

MODEL = "Nova N1"


class NovaBackend(TorchDeviceBackend):
    vendor = "nova"
    title = {"en": "Nova", "zh": "诺瓦"}
    torch_type = "nova"
    collective_backend = "novacl"
    visibility_variables = ("NOVA_VISIBLE_DEVICES",)
    precisions = ("fp32", "tf32", "bf16", "fp16", "amp-bf16", "amp-fp16")
    import_first = ("torch_nova",)

    def peaks(self) -> list[Peak]:
        rows = {"fp32": 1e12, "fp64": 1e12, "fp8": 4e12, "int8": 4e12}
        return [Peak(MODEL, row, value, "Nova N1 datasheet", "high") for row, value in rows.items()]

    def presence(self, machine: Machine) -> Presence:
        folder = machine.environ.get(MACHINE)
        if not folder:
            return Presence("absent", reason=f"{MACHINE} is not set")
        return Presence("present", tuple(f"{folder}/{card.id}" for card in read_cards(folder)))

    def devices(self, machine: Machine) -> list[Device]:
        cards = read_cards(machine.environ[MACHINE])
        found = [
            Device(card.id, MODEL, "N1", index, card.memory_bytes, uuid=card.uuid) for index, card in enumerate(cards)
        ]
        return visible_devices(found, machine.environ, self.visibility_variables)

    def versions(self, machine: Machine) -> dict[str, str]:
        return {"driver": "1.0"}


def visible_indices() -> list[int]:
    """The cards of this process, by physical index."""
    return [device.physical_index for device in NovaBackend().devices(Machine(environ=dict(os.environ)))]
