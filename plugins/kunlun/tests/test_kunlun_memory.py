from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kunlun_builders import ADDRESSES, TOTAL_MIB, UUIDS, answers, machine_with_tool, transcript

from flagperf.api import Device, Machine, Reading
from flagperf.errors import ToolFailed
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_kunlun.device import KunlunBackend
from flagperf_kunlun.memory import XPU_SMI, KunlunSmiProbe, KunlunTableProbe

GIB = 1 << 30
DEVICES = [
    Device(uuid, "P800-OAM", "P800-OAM", index, uuid=uuid, pci_address=ADDRESSES[index])
    for index, uuid in enumerate(UUIDS)
]
READINGS = [
    Reading(UUIDS[0], 1 * GIB, TOTAL_MIB << 20, 17.0, 112.0, 39.0),
    Reading(UUIDS[1], 3 * GIB, TOTAL_MIB << 20, 99.0, 371.0, 58.0),
]


def probe_on(machine: Machine) -> KunlunSmiProbe:
    probe = KunlunSmiProbe()
    assert probe.available(machine).available
    return probe


def figures(readings: list[Reading]) -> list[Reading]:
    return [msgspec.structs.replace(reading, properties={}) for reading in readings]


def test_all_figures_come_from_one_call(tmp_path: Path) -> None:
    assert figures(probe_on(machine_with_tool(tmp_path, answers())).sample(DEVICES, None)) == READINGS


def test_readings_follow_the_card_whatever_the_order(tmp_path: Path) -> None:
    lines = answers()[0].stdout.splitlines(keepends=True)
    turned = [Answer(("-m",), "".join(lines[::-1]))]
    assert figures(probe_on(machine_with_tool(tmp_path, turned)).sample(DEVICES, None)) == READINGS


def test_both_devices_of_a_board_have_their_own_reading(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, [Answer(("-m",), transcript("machine_k200_milliwatts"))])
    devices = KunlunBackend().devices(machine)
    readings = probe_on(machine).sample(devices, None)
    assert [(each.device_id, each.used_bytes) for each in readings] == [
        ("0200210711000123/0", 504 << 20),
        ("0200210711000123/1", 0),
    ]


def test_one_device_of_a_board_that_is_no_longer_listed_does_not_get_the_others_figures(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path / "a", [Answer(("-m",), transcript("machine_k200_milliwatts"))])
    devices = KunlunBackend().devices(machine)
    first_only = transcript("machine_k200_milliwatts").splitlines(keepends=True)[0]
    readings = probe_on(machine_with_tool(tmp_path / "b", [Answer(("-m",), first_only)])).sample(devices, None)
    assert [reading.used_bytes for reading in readings] == [None, None]


def test_a_card_that_the_tool_does_not_list_says_so(tmp_path: Path) -> None:
    stranger = Device("GPU-x", "R300", "R300", 5, uuid="GPU-x", pci_address="0000:77:00.0")
    (reading,) = probe_on(machine_with_tool(tmp_path, answers())).sample([stranger], None)
    why = "the tool did not list this card: what it lists is called 0000:1a:00.0, 0000:b4:00.0"
    assert reading.missing == dict.fromkeys(KunlunSmiProbe.figures, why)


def test_without_the_tool_the_probe_says_where_it_looked(tmp_path: Path) -> None:
    availability = KunlunSmiProbe().available(MachineFolder(tmp_path).machine())
    assert availability.reason == "no xpu-smi in PATH or /usr/local/bin, /usr/local/xpu/bin, /opt/xre/bin"


def test_intels_tool_is_not_used(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin", "xpu-smi", [Answer(("*",), transcript("intel_discovery"))])
    folder = MachineFolder(tmp_path / "root").pci("0000:4d:00.0", "8086", "56c0", "0380")
    availability = KunlunSmiProbe().available(folder.machine({"PATH": str(tmp_path / "bin")}))
    assert not availability.available and "is not Kunlunxin's" in availability.reason


def test_what_intels_tool_prints_beside_our_cards_is_refused(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, [Answer(("*",), transcript("intel_discovery"))])
    for probe in (KunlunSmiProbe(), KunlunTableProbe()):
        availability = probe.available(machine)
        assert not availability.available and "xpu-smi" in availability.reason


@pytest.mark.parametrize(
    "answer",
    [
        Answer(("-m",), "garbage\n"),
        Answer(("-m",), ""),
        Answer(("-m",), "", "no permission", returncode=4),
        Answer(("-m",), transcript("machine_p800").replace(" 17 ", " 17 0 ")),
    ],
)
def test_where_machine_lines_fail_the_table_is_read(tmp_path: Path, answer: Answer) -> None:
    machine = machine_with_tool(tmp_path, [answer, *answers()[1:]])
    assert not KunlunSmiProbe().available(machine).available
    probe = KunlunTableProbe()
    assert probe.available(machine).available
    first, second = figures(probe.sample(KunlunBackend().devices(machine), None))
    assert first == Reading(UUIDS[0], 2051 << 20, TOTAL_MIB << 20, 17.0, 112.0, 39.0)
    assert (second.used_bytes, second.power_watts) == (77120 << 20, None)


def test_an_answer_that_is_no_answer_is_a_gap(tmp_path: Path) -> None:
    probe = probe_on(machine_with_tool(tmp_path, answers()))
    machine_with_tool(tmp_path, [Answer(("-m",), "[ERROR] card 1\n")])
    with pytest.raises(ToolFailed, match="known words; the line: '\\[ERROR\\] card 1'"):
        probe.sample(DEVICES, None)


def test_a_tool_that_hangs_is_given_up_or_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = probe_on(machine_with_tool(tmp_path, answers()))
    machine = machine_with_tool(tmp_path, [Answer(("*",), "", seconds=600.0)])
    monkeypatch.setattr(KunlunSmiProbe, "tool", msgspec.structs.replace(XPU_SMI, timeout_seconds=0.5))
    assert "did not end within 0.5 s" in KunlunSmiProbe().available(machine).reason
    with pytest.raises(ToolFailed, match=r"did not end within 0\.5 s"):
        probe.sample(DEVICES, None)


def test_devices_that_the_table_lists_on_one_address_have_their_own_reading(tmp_path: Path) -> None:
    machine = machine_with_tool(tmp_path, [Answer((), transcript("table_xre4_8_columns"))])
    devices = KunlunBackend().devices(machine)
    assert [device.id for device in devices] == [
        "0200210711000123/device 0",
        "0200210711000123/device 1",
        "0001:03:00.0",
    ]
    probe = KunlunTableProbe()
    assert probe.available(machine).available
    assert [reading.used_bytes for reading in probe.sample(devices, None)] == [504 << 20, 0, None]
