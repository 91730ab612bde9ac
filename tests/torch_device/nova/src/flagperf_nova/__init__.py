"""Nova cards, whose torch device is out of tree: a type that neither torch nor accelerate knows by itself.

Nothing here is special: it is what a vendor with its own torch device writes. The driver of the cards is a folder,
NOVA_MACHINE, with the cards and what each process uses of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flagperf.api import Availability, Device, DeviceBackend, Launcher, Machine, MemoryProbe, Peak, Presence, Reading
from flagperf.hookspecs import hookimpl
from flagperf.kit import TorchDeviceBackend, TorchrunLauncher, visible_devices
from flagperf.testing import SimulatedCard

MACHINE = "NOVA_MACHINE"


def make_machine(folder: Path, *card_bytes: int) -> dict[str, str]:
    """A machine with these cards. Gives the variables that make it this machine."""
    cards = [
        SimulatedCard(f"NOVA-{index}{index}", size, uuid=f"NOVA-{index}{index}")
        for index, size in enumerate(card_bytes)
    ]
    (folder / "used").mkdir(parents=True)
    (folder / "cards.json").write_bytes(msgspec.json.encode(cards))
    return {MACHINE: str(folder)}


def read_cards(folder: str) -> list[SimulatedCard]:
    return msgspec.json.decode((Path(folder) / "cards.json").read_bytes(), type=list[SimulatedCard])


def report_use(folder: str, index: int, used_bytes: int) -> None:
    """What this process uses of a card, replaced in one step: the probe never reads half of it."""
    place = Path(folder) / "used" / f"{index}.{os.getpid()}"
    beside = place.with_suffix(f".{os.getpid()}-new")
    beside.write_text(str(used_bytes))
    beside.replace(place)


def used_bytes(folder: str, index: int) -> int:
    """Of all processes that are still there: as on a card, memory ends with its process."""
    notes = [path for path in (Path(folder) / "used").glob(f"{index}.*") if path.suffix[1:].isdigit()]
    return sum(int(path.read_text()) for path in notes if Path("/proc", path.suffix[1:]).exists())


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


class NovaProbe(MemoryProbe):
    vendor = "nova"
    name = "nova-driver"
    figures = ("used_bytes", "total_bytes")

    def available(self, machine: Machine) -> Availability:
        return Availability(MACHINE in machine.environ, f"{MACHINE} is not set")

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        folder = os.environ[MACHINE]
        return [
            Reading(device.id, used_bytes(folder, device.physical_index), device.memory_bytes) for device in devices
        ]


class NovaLauncher(TorchrunLauncher):
    vendor = "nova"
    visibility_variables = ("NOVA_VISIBLE_DEVICES",)


FLAGPERF_HOOK_API = 1


@hookimpl
def flagperf_devices() -> list[DeviceBackend]:
    return [NovaBackend()]


@hookimpl
def flagperf_memory_probes() -> list[MemoryProbe]:
    return [NovaProbe()]


@hookimpl
def flagperf_launchers() -> list[Launcher]:
    return [NovaLauncher()]
