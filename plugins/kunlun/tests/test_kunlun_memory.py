"""The probes through xpu-smi: whose figures these are, and what becomes of a tool that misbehaves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from kunlun_builders import TOTAL_MIB, answers, machine_with_tool
from kunlun_outputs import ADDRESSES, MACHINE, UUIDS, transcript

from flagperf.api import Device, Machine, Reading
from flagperf.testing import Answer, MachineFolder, write_tool
from flagperf_kunlun.device import KunlunBackend
from flagperf_kunlun.memory import KunlunSmiProbe, KunlunTableProbe

GIB = 1 << 30
DEVICES = [
    Device(uuid, "P800-OAM", "P800-OAM", index, uuid=uuid, pci_address=ADDRESSES[index])
    for index, uuid in enumerate(UUIDS)
]
READINGS = [
    Reading(UUIDS[0], 1 * GIB, TOTAL_MIB << 20, 17.0, 112.0, 39.0),
    Reading(UUIDS[1], 3 * GIB, TOTAL_MIB << 20, 99.0, 371.0, 58.0),
]
K200, INTEL = transcript("machine_k200_milliwatts"), [Answer(("*",), transcript("intel_discovery"))]


def figures(
    machine: Machine, devices: list[Device] | None = None, probe: KunlunSmiProbe | None = None
) -> list[Reading]:
    probe = probe or KunlunSmiProbe()
    assert probe.available(machine).available
    readings = probe.sample(KunlunBackend().devices(machine) if devices is None else devices, None)
    return [msgspec.structs.replace(reading, properties={}) for reading in readings]


def test_readings_follow_the_card_whatever_the_order(tmp_path: Path) -> None:
    assert figures(machine_with_tool(tmp_path / "as it is", answers()), DEVICES) == READINGS
    turned = "".join(answers()[0].stdout.splitlines(keepends=True)[::-1])
    assert figures(machine_with_tool(tmp_path / "turned", [Answer(("-m",), turned)]), DEVICES) == READINGS


@pytest.mark.parametrize(
    ("probe", "answer", "used"),
    [
        (KunlunSmiProbe(), Answer(("-m",), K200), [504 << 20, 0]),
        (KunlunTableProbe(), Answer((), transcript("table_xre4_8_columns")), [504 << 20, 0, None]),
    ],
)
def test_both_devices_of_a_board_have_their_own_reading(
    tmp_path: Path, probe: KunlunSmiProbe, answer: Answer, used: list[int | None]
) -> None:
    readings = figures(machine_with_tool(tmp_path, [answer]), probe=probe)
    assert [reading.used_bytes for reading in readings] == used


def test_one_device_of_a_board_that_is_no_longer_listed_does_not_get_the_others_figures(tmp_path: Path) -> None:
    devices = KunlunBackend().devices(machine_with_tool(tmp_path / "a", [Answer(("-m",), K200)]))
    first_only = [Answer(("-m",), K200.splitlines(keepends=True)[0])]
    readings = figures(machine_with_tool(tmp_path / "b", first_only), devices)
    assert [reading.used_bytes for reading in readings] == [None, None]


def test_intels_tool_is_not_used(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin", "xpu-smi", INTEL)
    folder = MachineFolder(tmp_path / "root").pci("0000:4d:00.0", "8086", "56c0", "0380")
    alone = folder.machine({"PATH": str(tmp_path / "bin")})
    beside_ours = machine_with_tool(tmp_path / "ours", INTEL)
    assert "is not Kunlunxin's" in KunlunSmiProbe().available(alone).reason
    for probe in (KunlunSmiProbe(), KunlunTableProbe()):
        assert not probe.available(beside_ours).available


@pytest.mark.parametrize(
    "answer",
    [Answer(("-m",), ""), Answer(("-m",), "", "no permission", 4), Answer(("-m",), MACHINE.replace(" 17 ", " 17 0 "))],
)
def test_where_machine_lines_fail_the_table_is_read(tmp_path: Path, answer: Answer) -> None:
    machine = machine_with_tool(tmp_path, [answer, *answers()[1:]])
    assert not KunlunSmiProbe().available(machine).available
    first, second = figures(machine, probe=KunlunTableProbe())
    assert first == Reading(UUIDS[0], 2051 << 20, TOTAL_MIB << 20, 17.0, 112.0, 39.0)
    assert (second.used_bytes, second.power_watts) == (77120 << 20, None)
