"""The cards' memory, utilisation, power and temperature through mx-smi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from flagperf.api import Availability, Device, Machine, Reading
from flagperf.kit import Query, Tool, ToolProbe, merge, pci_functions
from flagperf_metax.smi import (
    parse_board_power,
    parse_dmon,
    parse_json,
    parse_memory,
    parse_table,
    parse_temperature,
    parse_usage,
)

PCI_VENDOR = "9999"
DEVICE_NODE = "/dev/mxcd"

MX_SMI = Tool(("mx-smi",), ("/opt/mxdriver/bin", "/opt/maca/bin"))
MEMORY = Query(("--show-memory",), parse_memory, ("used_bytes", "total_bytes"))
JSON = Query(("-j",), parse_json, ("utilisation_percent", "power_watts", "temperature_celsius", "clock_mhz"))
BOARD_POWER = Query(("--show-board-power",), parse_board_power, ("power_watts",))
TEMPERATURE = Query(("--show-temperature",), parse_temperature, ("temperature_celsius",))
USAGE = Query(("--show-usage",), parse_usage, ("utilisation_percent",))
DMON = Query(
    ("dmon", "--show-temperature", "--show-board-power", "--show-usage", "--show-bdf", "--format", "csv", "-c", "1"),
    parse_dmon,
    ("utilisation_percent", "power_watts", "temperature_celsius"),
)
TABLE = Query(
    (), parse_table, ("used_bytes", "total_bytes", "utilisation_percent", "power_watts", "temperature_celsius")
)

_OF_THE_CARD = "mx-smi has it of the whole card only, which the slice shares"


class MxSmiProbe(ToolProbe):
    """Two calls a sample: memory, and -j for the rest. The others are asked where -j leaves a figure out."""

    vendor = "metax"
    name = "mx-smi"
    tool = MX_SMI
    queries: ClassVar[tuple[Query, ...]] = (MEMORY, JSON, BOARD_POWER, TEMPERATURE, USAGE, DMON)
    figures = (*ToolProbe.figures, "clock_mhz")
    minimum_interval_seconds = 1.0

    def available(self, machine: Machine) -> Availability:
        """By trying it: releases differ in what they answer, and another company ships a tool of this name."""
        path = self.tool.find(machine)
        if path and not is_metax_machine(machine):
            return Availability(False, f"{path} without a card of MetaX is taken for another company's tool")
        return self.tried(machine)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        """A slice shares the address of its card, whose figures count its neighbours too: it has a table of its own."""
        cards = [device for device in devices if not device.slice]
        slices = [device for device in devices if device.slice]
        whole = super().sample(cards, launcher_pid) if cards else []
        return [*whole, *(self._sample_slices(slices) if slices else [])]

    def _sample_slices(self, slices: Sequence[Device]) -> list[Reading]:
        rows = {reading.device_id: reading for reading in TABLE.ask(self.tool, self._machine)}
        return [_slice_reading(device, rows) for device in slices]


class MxSmiTableProbe(MxSmiProbe):
    """For releases without --show-memory: the default table, memory in whole MiB."""

    name = "mx-smi-table"
    queries = (TABLE,)
    figures = ToolProbe.figures


def is_metax_machine(machine: Machine) -> bool:
    return bool(pci_functions(machine, PCI_VENDOR) or machine.glob(DEVICE_NODE))


def _slice_reading(device: Device, rows: Mapping[str, Reading]) -> Reading:
    row = merge(device.id, [rows.get(device.properties.get("sgpu", ""))], {})
    shared = dict.fromkeys(("power_watts", "temperature_celsius"), _OF_THE_CARD)
    return msgspec.structs.replace(row, missing={**row.missing, **shared})
