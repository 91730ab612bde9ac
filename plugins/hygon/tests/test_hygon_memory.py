from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hygon_builders import ADDRESSES, TOTAL_MIB, answers, as_text, machine_with_tool, table

from flagperf.api import FIGURES, Device, Machine, Reading
from flagperf.errors import ToolFailed
from flagperf.testing import Answer, MachineFolder
from flagperf_hygon.device import HygonBackend
from flagperf_hygon.memory import HY_SMI, HygonSmiProbe, HygonTableProbe, HygonTextProbe

GIB = 1 << 30
DEVICES = [Device(address, "K100_AI", "K100_AI", index, pci_address=address) for index, address in enumerate(ADDRESSES)]
READINGS = [
    Reading(ADDRESSES[0], 1 * GIB, TOTAL_MIB << 20, 15.0, 121.0, 43.0),
    Reading(ADDRESSES[1], 3 * GIB, TOTAL_MIB << 20, 92.5, 377.0, 66.0),
]


def probe_on(machine: Machine) -> HygonSmiProbe:
    probe = HygonSmiProbe()
    assert probe.available(machine).available
    return probe


def figures(readings: list[Reading]) -> list[Reading]:
    return [msgspec.structs.replace(reading, properties={}) for reading in readings]


def but(option: str, answer: Answer | None) -> list[Answer]:
    """All answers, with one of them replaced or left out."""
    kept = [each for each in answers() if each.arguments[0] != option]
    return [*kept, answer] if answer else kept


def test_all_figures_come_from_one_call_per_metric(tmp_path: Path) -> None:
    assert figures(probe_on(machine_with_tool(tmp_path, answers())).sample(DEVICES, None)) == READINGS


def test_readings_follow_the_address_where_the_tool_numbers_from_1(tmp_path: Path) -> None:
    probe = probe_on(machine_with_tool(tmp_path, answers(first=1)))
    assert figures(probe.sample(DEVICES, None)) == READINGS
    assert figures(probe.sample(DEVICES[::-1], None)) == READINGS[::-1]


def test_a_card_that_the_tool_does_not_list_says_so(tmp_path: Path) -> None:
    stranger = Device("0000:77:00.0", "K100_AI", "K100_AI", 5, pci_address="0000:77:00.0")
    (reading,) = probe_on(machine_with_tool(tmp_path, answers())).sample([stranger], None)
    why = "the tool did not list this card: what it lists is called 0, 1"
    assert reading.missing == dict.fromkeys(HygonSmiProbe.figures, why)


def test_without_the_tool_the_probe_says_where_it_looked(tmp_path: Path) -> None:
    availability = HygonSmiProbe().available(MachineFolder(tmp_path).machine())
    assert not availability.available
    assert (
        availability.reason
        == "no hy-smi in PATH or /opt/hyhal/bin, /usr/local/hyhal/bin, /opt/dtk/.hyhal/bin, /opt/dtk/bin"
    )


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Answer(("--showuse", "--json"), "not JSON\n"),
        Answer(("--showuse", "--json"), '{"card0":{"HCU busy":"1"}}'),
        Answer(("--showuse", "--json"), "", "Traceback", returncode=1),
    ],
)
def test_one_metric_that_fails_is_missing_with_its_reason(tmp_path: Path, answer: Answer | None) -> None:
    readings = probe_on(machine_with_tool(tmp_path, but("--showuse", answer))).sample(DEVICES, None)
    assert [reading.used_bytes for reading in readings] == [1 * GIB, 3 * GIB]
    assert [reading.power_watts for reading in readings] == [121.0, 377.0]
    assert all(reading.utilisation_percent is None and reading.missing["utilisation_percent"] for reading in readings)


BROKEN = Answer(("--showmeminfo", "vram", "--json"), '{"card0":{"vram Total Memory (GiB)":"64"}}')


def test_without_memory_the_sample_is_a_gap(tmp_path: Path) -> None:
    probe = probe_on(machine_with_tool(tmp_path, answers()))
    machine_with_tool(tmp_path, but("--showmeminfo", BROKEN))
    with pytest.raises(ToolFailed, match="other units only"):
        probe.sample(DEVICES, None)


def test_a_tool_that_hangs_is_given_up_or_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = probe_on(machine_with_tool(tmp_path, answers()))
    machine = machine_with_tool(tmp_path, [Answer(("*",), "", seconds=600.0)])
    monkeypatch.setattr(HygonSmiProbe, "tool", msgspec.structs.replace(HY_SMI, timeout_seconds=0.5))
    assert "did not end within 0.5 s" in HygonSmiProbe().available(machine).reason
    with pytest.raises(ToolFailed, match=r"did not end within 0\.5 s"):
        probe.sample(DEVICES, None)


@pytest.mark.parametrize("option", ["--showmeminfo", "--showbus"])
def test_where_json_fails_the_same_is_read_as_text(tmp_path: Path, option: str) -> None:
    machine = machine_with_tool(tmp_path, [*but(option, None), *as_text(answers(first=1))])
    assert "PARSE ERROR" in HygonSmiProbe().available(machine).reason
    probe = HygonTextProbe()
    assert probe.available(machine).available
    assert figures(probe.sample(DEVICES, None)) == READINGS


def test_where_only_the_table_can_be_read_it_gives_what_it_has(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, [table()])
    assert not HygonSmiProbe().available(machine).available
    assert not HygonTextProbe().available(machine).available
    devices, probe = HygonBackend().devices(machine), HygonTableProbe()
    assert probe.available(machine).available
    idle, busy = probe.sample(devices[::-1], None)[::-1]
    assert (idle.device_id, idle.power_watts, idle.temperature_celsius) == ("hy-smi-0", 151.0, 39.0)
    assert (busy.device_id, busy.power_watts, busy.utilisation_percent) == ("hy-smi-1", 613.5, 88.4)
    assert busy.used_bytes is None and "whole percents" in busy.missing["used_bytes"]


def test_the_table_says_of_a_card_that_discovery_found_on_the_bus_alone_that_it_is_not_listed(tmp_path: Path) -> None:
    probe, lost = HygonTableProbe(), Device("0000:77:00.0", "K100_AI", "K100_AI", -1, pci_address="0000:77:00.0")
    assert probe.available(machine_with_tool(tmp_path, [table()])).available
    (reading,) = probe.sample([lost], None)
    assert reading.missing["power_watts"].startswith("the tool did not list this card")


def test_power_below_an_idle_cards_is_left_out_of_a_busy_one(tmp_path: Path) -> None:
    low = Answer(
        ("--showpower", "--json"),
        '{"card0":{"Average Graphics Package Power (W)":"8.0"},"card1":{"Average Graphics Package Power (W)":"8.0"}}',
    )
    readings = probe_on(machine_with_tool(tmp_path, but("--showpower", low))).sample(DEVICES, None)
    assert [reading.missing["power_watts"] for reading in readings] == [
        "implausible: 8 W at 15 % utilisation",
        "implausible: 8 W at 92.5 % utilisation",
    ]


def test_no_figure_of_a_slice_is_the_cards(tmp_path: Path) -> None:
    slices = [msgspec.structs.replace(device, slice="vHCU 0") for device in DEVICES]
    readings = probe_on(machine_with_tool(tmp_path, answers())).sample(slices, None)
    reasons = dict.fromkeys(FIGURES, "not known for a slice (vHCU 0)")
    assert readings == [Reading(device.id, missing=reasons) for device in slices]


def test_the_interval_leaves_the_slow_tool_time() -> None:
    seconds_a_call = 1.0
    assert HygonSmiProbe.minimum_interval_seconds > seconds_a_call * len(HygonSmiProbe.queries)
