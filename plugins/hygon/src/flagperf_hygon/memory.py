"""The cards' figures through hy-smi. It is a Python program, about a second a call, and some releases reject two
metric options in one call: hence one call per metric, and a slow interval."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.api import FIGURES, Availability, Device, Machine, Reading
from flagperf.kit import Query, Tool, ToolProbe
from flagperf_hygon.smi import parse_json, plausible

HY_SMI = Tool(("hy-smi", "rocm-smi"), ("/opt/hyhal/bin", "/usr/local/hyhal/bin", "/opt/dtk/.hyhal/bin", "/opt/dtk/bin"))
BUS = Query(("--showbus", "--json"), parse_json, ())
MEMORY = Query(("--showmeminfo", "vram", "--json"), parse_json, ("used_bytes", "total_bytes"))
USE = Query(("--showuse", "--json"), parse_json, ("utilisation_percent",))
POWER = Query(("--showpower", "--json"), parse_json, ("power_watts",))
TEMPERATURE = Query(("--showtemp", "--json"), parse_json, ("temperature_celsius",))


class HygonSmiProbe(ToolProbe):
    vendor = "hygon"
    name = "hy-smi"
    tool = HY_SMI
    queries = (MEMORY, USE, POWER, TEMPERATURE)
    minimum_interval_seconds = 5.0

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    def available(self, machine: Machine) -> Availability:
        self._numbers = {}
        return super().available(machine)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        readings = super().sample(self._numbered(devices), launcher_pid)
        return [_own(reading, device) for reading, device in zip(readings, devices, strict=True)]

    def _numbered(self, devices: Sequence[Device]) -> list[Device]:
        """With the tool's numbers, which differ from torch's where they start at 1. Asked once, by PCI address."""
        if not self._numbers:
            buses = BUS.ask(self.tool, self._machine)
            self._numbers = {each.properties.get("pci_address", ""): int(each.device_id) for each in buses}
        unlisted = -1  # no card of the tool's has it, so the reading says that it was not listed
        return [
            msgspec.structs.replace(device, physical_index=self._numbers.get(device.pci_address, unlisted))
            for device in devices
        ]


def _own(reading: Reading, device: Device) -> Reading:
    """What the tool says inside a slice is not known to be the slice's."""
    if not device.slice:
        return plausible(reading)
    return Reading(device.id, missing=dict.fromkeys(FIGURES, f"not known for a slice ({device.slice})"))
