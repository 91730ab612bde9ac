"""The cards' figures through hy-smi. It is a Python program, about a second a call, and some releases reject two
metric options in one call: hence one call per metric, and a slow interval. Where a release does not print JSON in a
known way, the same options are read as text, and where that fails too the table, which has no memory in bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import msgspec

from flagperf.api import FIGURES, Availability, Device, Machine, Reading
from flagperf.errors import ToolFailed
from flagperf.kit import Query, Tool, ToolProbe
from flagperf_hygon.smi import parse_json, parse_table, parse_text, plausible

HY_SMI = Tool(("hy-smi", "rocm-smi"), ("/opt/hyhal/bin", "/usr/local/hyhal/bin", "/opt/dtk/.hyhal/bin", "/opt/dtk/bin"))


class Form(msgspec.Struct, frozen=True):
    """One way of asking for everything."""

    option: tuple[str, ...]
    parse: Callable[[str], list[Reading]]

    def query(self, *arguments: str, figures: tuple[str, ...] = ()) -> Query:
        return Query((*arguments, *self.option), self.parse, figures)

    @property
    def bus(self) -> Query:
        return self.query("--showbus")

    @property
    def cards(self) -> tuple[Query, ...]:
        return self.bus, self.metrics[0], self.query("--showproductname")

    @property
    def metrics(self) -> tuple[Query, ...]:
        return (
            self.query("--showmeminfo", "vram", figures=("used_bytes", "total_bytes")),
            self.query("--showuse", figures=("utilisation_percent",)),
            self.query("--showpower", figures=("power_watts",)),
            self.query("--showtemp", figures=("temperature_celsius",)),
        )


JSON = Form(("--json",), parse_json)
TEXT = Form((), parse_text)
TABLE = Query((), parse_table, ("utilisation_percent", "power_watts", "temperature_celsius"))


class HygonSmiProbe(ToolProbe):
    vendor = "hygon"
    name = "hy-smi"
    tool = HY_SMI
    bus: ClassVar[Query | None] = JSON.bus
    queries: ClassVar[tuple[Query, ...]] = JSON.metrics
    minimum_interval_seconds = 5.0

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}

    def available(self, machine: Machine) -> Availability:
        self._numbers = {}
        found = self.tried(machine)
        if found.available and self.bus is not None:
            try:
                buses = self.bus.ask(self.tool, machine)
            except ToolFailed as error:
                return Availability(False, str(error))
            self._numbers = {each.properties.get("pci_address", ""): int(each.device_id) for each in buses}
        return found

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        readings = super().sample(self._numbered(devices), launcher_pid)
        return [_own(reading, device) for reading, device in zip(readings, devices, strict=True)]

    def _numbered(self, devices: Sequence[Device]) -> list[Device]:
        """With the tool's numbers, which differ from torch's where they start at 1. They go by PCI address; the table
        has none, so there they are those of discovery."""
        unlisted = -1  # no card of the tool's has it, so the reading says that it was not listed
        numbers = [
            self._numbers.get(device.pci_address, unlisted)
            if self.bus
            else int(device.properties.get("tool_index", unlisted))
            for device in devices
        ]
        return [
            msgspec.structs.replace(device, physical_index=number)
            for device, number in zip(devices, numbers, strict=True)
        ]


class HygonTextProbe(HygonSmiProbe):
    name = "hy-smi-text"
    bus = TEXT.bus
    queries = TEXT.metrics


class HygonTableProbe(HygonSmiProbe):
    name = "hy-smi-table"
    bus = None
    queries = (TABLE,)


def _own(reading: Reading, device: Device) -> Reading:
    """What the tool says inside a slice is not known to be the slice's."""
    if not device.slice:
        return plausible(reading)
    return Reading(device.id, missing=dict.fromkeys(FIGURES, f"not known for a slice ({device.slice})"))
