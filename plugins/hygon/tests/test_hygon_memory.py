"""The probes through hy-smi: whose figures these are, and what becomes of a tool that misbehaves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hygon_builders import ADDRESSES, TABLE, TOTAL_MIB, answers, as_text, machine_with_tool

from flagperf.api import FIGURES, Device, Machine, Reading
from flagperf.testing import Answer
from flagperf_hygon.device import HygonBackend
from flagperf_hygon.memory import HygonSmiProbe, HygonTableProbe, HygonTextProbe

GIB = 1 << 30
DEVICES = [Device(address, "K100_AI", "K100_AI", index, pci_address=address) for index, address in enumerate(ADDRESSES)]
READINGS = [
    Reading(ADDRESSES[0], 1 * GIB, TOTAL_MIB << 20, 15.0, 121.0, 43.0),
    Reading(ADDRESSES[1], 3 * GIB, TOTAL_MIB << 20, 92.5, 377.0, 66.0),
]


def figures(machine: Machine, devices: list[Device] = DEVICES, probe: HygonSmiProbe | None = None) -> list[Reading]:
    probe = probe or HygonSmiProbe()
    assert probe.available(machine).available
    return [msgspec.structs.replace(reading, properties={}) for reading in probe.sample(devices, None)]


def but(option: str, answer: Answer | None) -> list[Answer]:
    """All answers, with one of them replaced or left out."""
    kept = [each for each in answers() if each.arguments[0] != option]
    return [*kept, answer] if answer else kept


@pytest.mark.parametrize("first", [0, 1])
def test_readings_follow_the_address_wherever_the_tool_begins_to_count(tmp_path: Path, first: int) -> None:
    machine = machine_with_tool(tmp_path, answers(first))
    assert figures(machine) == READINGS
    assert figures(machine, DEVICES[::-1]) == READINGS[::-1]


@pytest.mark.parametrize("option", ["--showmeminfo", "--showbus"])
def test_where_json_fails_the_same_is_read_as_text(tmp_path: Path, option: str) -> None:
    machine = machine_with_tool(tmp_path, [*but(option, None), *as_text(answers(first=1))])
    assert "PARSE ERROR" in HygonSmiProbe().available(machine).reason
    assert figures(machine, DEVICES, HygonTextProbe()) == READINGS


def test_where_only_the_table_can_be_read_it_gives_what_it_has(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, TABLE)
    assert not HygonSmiProbe().available(machine).available
    assert not HygonTextProbe().available(machine).available
    busy, idle = figures(machine, HygonBackend().devices(machine)[::-1], HygonTableProbe())
    assert (idle.device_id, idle.power_watts, idle.temperature_celsius) == ("hy-smi-0", 151.0, 39.0)
    assert (busy.device_id, busy.power_watts, busy.utilisation_percent) == ("hy-smi-1", 613.5, 88.4)


def test_power_below_an_idle_cards_is_left_out_of_a_busy_one(tmp_path: Path) -> None:
    """Also where both come in calls of their own."""
    power = next(each for each in answers() if each.arguments[0] == "--showpower")
    low = Answer(power.arguments, power.stdout.replace("121.0", "8.0").replace("377.0", "8.0"))
    readings = figures(machine_with_tool(tmp_path, but("--showpower", low)))
    assert [reading.missing["power_watts"] for reading in readings] == [
        f"implausible: 8 W at {busy} % utilisation" for busy in ("15", "92.5")
    ]


def test_no_figure_of_a_slice_is_the_cards(tmp_path: Path) -> None:
    slices = [msgspec.structs.replace(device, slice="vHCU 0") for device in DEVICES]
    reasons = dict.fromkeys(FIGURES, "not known for a slice (vHCU 0)")
    expected = [Reading(device.id, missing=reasons) for device in slices]
    assert figures(machine_with_tool(tmp_path, answers()), slices) == expected
