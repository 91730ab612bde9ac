"""What NVIDIA cards say of themselves: NVML, and nvidia-smi where the library cannot be had."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from flagperf.api import FIGURES, Availability, Device, Machine, MemoryProbe, ProcessReading, Reading
from flagperf.errors import ToolFailed
from flagperf.kit import ToolProbe
from flagperf_nvidia import smi
from flagperf_nvidia.device import presence
from flagperf_nvidia.nvml import Nvml, NvmlFailed

NOT_OF_A_SLICE = "NVML tells it of the whole card, not of a slice"


class NvmlProbe(MemoryProbe):
    """Keeps one session open. A card that falls off the bus is missing with NVML's words; the others go on."""

    vendor = "nvidia"
    name = "nvml"
    figures = FIGURES
    minimum_interval_seconds = 0.1

    def __init__(self) -> None:
        self._nvml: Nvml | None = None
        self._handles: dict[str, Any] = {}

    def available(self, machine: Machine) -> Availability:
        absent = _absence(machine)
        if absent:
            return Availability(False, absent)
        try:
            with Nvml():
                return Availability(True)
        except ToolFailed as error:
            return Availability(False, str(error))

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        nvml = self._session()
        return [self._read(nvml, device) for device in devices]

    def processes(self, devices: Sequence[Device]) -> list[ProcessReading]:
        """Of every card that answers: one that fell off the bus hides none of the others'. Its samples say so."""
        nvml = self._session()
        listed: list[ProcessReading] = []
        failures: list[NvmlFailed] = []
        for device in devices:
            try:
                found = nvml.processes(self._handle(nvml, device))
            except NvmlFailed as error:
                failures.append(error)
                print(f"processes of {device.id} are not listed: {error}", file=sys.stderr)
            else:
                listed += [ProcessReading(device.id, pid, used_bytes) for pid, used_bytes in found]
        if failures and len(failures) == len(devices):
            raise failures[0]
        return listed

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None
        self._handles.clear()

    def _session(self) -> Nvml:
        if self._nvml is None:
            nvml = Nvml()
            nvml.open()
            self._nvml = nvml
        return self._nvml

    def _handle(self, nvml: Nvml, device: Device) -> Any:
        """By UUID, which means the same card whatever the order; a slice has one of its own."""
        if device.id not in self._handles:
            self._handles[device.id] = nvml.handle_of(device.uuid, device.pci_address)
        return self._handles[device.id]

    def _read(self, nvml: Nvml, device: Device) -> Reading:
        try:
            handle = self._handle(nvml, device)
        except NvmlFailed as error:
            return Reading(device.id, missing=dict.fromkeys(FIGURES, str(error)))
        values: dict[str, Any] = {}
        missing: dict[str, str] = {}
        form = {}
        try:
            memory = nvml.memory(handle)
            values |= {"used_bytes": memory.used_bytes, "total_bytes": memory.total_bytes}
            form = {"memory_form": memory.form}
        except NvmlFailed as error:
            missing |= dict.fromkeys(("used_bytes", "total_bytes"), str(error))
        for figure, read in _whole_card(nvml).items():
            try:
                if device.slice:
                    missing[figure] = NOT_OF_A_SLICE
                else:
                    values[figure] = read(handle)
            except NvmlFailed as error:
                missing[figure] = str(error)
        return Reading(device.id, **values, missing=missing, properties=form)


class NvidiaSmiProbe(ToolProbe):
    """Starting the tool takes a good part of a second on a machine with eight cards."""

    vendor = "nvidia"
    name = "nvidia-smi"
    tool = smi.NVIDIA_SMI
    queries = (smi.CARDS,)
    minimum_interval_seconds = 1.0

    def available(self, machine: Machine) -> Availability:
        absent = _absence(machine)
        return Availability(False, absent) if absent else super().available(machine)

    def sample(self, devices: Sequence[Device], launcher_pid: int | None) -> list[Reading]:
        cards = [device for device in devices if not device.slice]
        readings = super().sample(cards, launcher_pid) if cards else []
        unknown = dict.fromkeys(FIGURES, smi.NOT_OF_A_SLICE)
        return [*readings, *(Reading(device.id, missing=unknown) for device in devices if device.slice)]

    def processes(self, devices: Sequence[Device]) -> list[ProcessReading]:
        """The tool names cards, not slices: none listed would not mean that a slice has none."""
        if any(device.slice for device in devices):
            raise ToolFailed("nvidia-smi tells the processes of the whole card, not of a slice")
        listed = smi.parse_compute_apps(self.tool.run(self._machine, smi.QUERY_COMPUTE_APPS))
        uuids = {device.uuid for device in devices}
        return [each for each in listed if each.device_id in uuids]


def _whole_card(nvml: Nvml) -> dict[str, Callable[[Any], float | tuple[str, ...]]]:
    return {
        "utilisation_percent": nvml.utilisation_percent,
        "power_watts": nvml.power_watts,
        "temperature_celsius": nvml.temperature_celsius,
        "energy_joules": nvml.energy_joules,
        "clock_mhz": nvml.clock_mhz,
        "throttle_reasons": nvml.throttle_reasons,
    }


def _absence(machine: Machine) -> str:
    """Library and tool of that name exist on machines without such a card: another vendor's answer to NVML calls."""
    found = presence(machine)
    return "" if found.state == "present" else f"no NVIDIA card is here: {found.reason}"
