"""The probes through mx-smi: whose figures these are, and what becomes of a tool that misbehaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from metax_builders import (
    ANSWERS,
    SLICED_ANSWERS,
    card,
    folder_with_cards,
    machine_with_tool,
    replaced,
    slice_device,
    without,
)
from metax_outputs import GIB, LOG, LOGGED_JSON, MIB, WAY2, transcript

from flagperf.api import Availability, Device, Machine, Reading
from flagperf.testing import Answer, MachineFolder
from flagperf_metax.memory import DMON, MxSmiProbe, MxSmiTableProbe

CARDS = (card(0), card(1))


def sample(machine: Machine, devices: Sequence[Device] = CARDS, probe: MxSmiProbe | None = None) -> list[Reading]:
    probe = probe or MxSmiProbe()
    assert probe.available(machine) == Availability(True)
    return probe.sample(devices, None)


def test_figures_belong_to_the_card_whatever_the_order(tmp_path: Path) -> None:
    machine = machine_with_tool(folder_with_cards(tmp_path), used_bytes=[3 * GIB, 5 * GIB])
    first, second = sample(machine)
    assert (first.device_id, first.used_bytes, first.total_bytes) == (CARDS[0].id, 3 * GIB, 64 * GIB)
    assert (second.used_bytes, second.power_watts, second.temperature_celsius) == (5 * GIB, 58.625, 36.25)
    assert (first.clock_mhz, second.clock_mhz) == (1500.0, 1500.0)
    assert sample(machine, CARDS[::-1]) == [second, first]
    assert sample(machine, CARDS[1:]) == [second]


ODD_SUPPLIES = Answer(("-j",), LOGGED_JSON.replace(WAY2, f'{WAY2}, "Limit": "350.0"'))
BOARD = Answer(("--show-board-power",), transcript("show_board_power").replace("199.875", "200.125"))
NO_TEMPERATURE = (
    *without(without(ANSWERS, "-j"), "--show-temperature"),
    Answer(DMON.arguments, transcript("dmon_c500")),
)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (without(ANSWERS, "-j"), (97.0, 199.875, 61.5)),
        (replaced(ANSWERS, ODD_SUPPLIES, BOARD), (97.0, 200.125, 61.5)),
        (NO_TEMPERATURE, (97.0, 199.875, 61.0)),
    ],
    ids=["the options of their own", "the board power beside odd supplies", "dmon"],
)
def test_what_json_leaves_out_is_asked_of_others(
    answers: Sequence[Answer], expected: tuple[float, ...], tmp_path: Path
) -> None:
    first, _ = sample(machine_with_tool(folder_with_cards(tmp_path), answers))
    assert (first.utilisation_percent, first.power_watts, first.temperature_celsius) == expected


def test_a_card_that_is_not_in_the_answer_has_no_number(tmp_path: Path) -> None:
    listed = Answer(("--show-memory",), transcript("show_memory_sysfs_error"))
    first, second = sample(machine_with_tool(folder_with_cards(tmp_path), replaced(ANSWERS, listed)))
    assert (first.used_bytes, second.used_bytes, second.power_watts) == (1 * GIB, None, 58.625)
    assert "Sysfs error" in second.missing["used_bytes"]


def test_another_companys_tool_of_that_name_is_not_used(tmp_path: Path) -> None:
    """It is told by the machine, and by its words."""
    alone = MxSmiProbe().available(machine_with_tool(MachineFolder(tmp_path / "alone")))
    assert not alone.available and "another company" in alone.reason
    other = Answer(("--show-memory",), LOG.replace("MetaX", "Moffett"))
    machine = machine_with_tool(folder_with_cards(tmp_path / "beside ours"), replaced(ANSWERS, other))
    assert not MxSmiProbe().available(machine).available


@pytest.mark.parametrize("release", ["table_a0", "table_a1", "table_b", "table_c"])
def test_a_release_without_show_memory_is_read_through_its_table(tmp_path: Path, release: str) -> None:
    machine = machine_with_tool(folder_with_cards(tmp_path), (Answer((), transcript(release)),))
    assert "--show-memory" in MxSmiProbe().available(machine).reason
    first, second = sample(machine, probe=MxSmiTableProbe())
    assert (first.used_bytes, first.total_bytes, first.power_watts) == (1 * GIB, 64 * GIB, 199.0)
    assert (second.used_bytes, second.utilisation_percent, second.temperature_celsius) == (2 * GIB, 0.0, 36.0)


SLICED = (*SLICED_ANSWERS, Answer(("--show-memory",), LOG))


@pytest.mark.parametrize("probe", [MxSmiProbe, MxSmiTableProbe])
def test_a_slice_has_its_own_use_and_quota_and_never_its_cards(tmp_path: Path, probe: type[MxSmiProbe]) -> None:
    (reading,) = sample(machine_with_tool(folder_with_cards(tmp_path), SLICED), [slice_device()], probe())
    assert (reading.used_bytes, reading.total_bytes) == (512 * MIB, 32000 * MIB)
    assert (reading.utilisation_percent, reading.power_watts, reading.temperature_celsius) == (40.0, None, None)
    assert "whole card" in reading.missing["power_watts"]


def test_a_slice_that_the_table_does_not_list_has_no_number(tmp_path: Path) -> None:
    answers = replaced(SLICED, Answer((), transcript("table_c")))
    (reading,) = sample(machine_with_tool(folder_with_cards(tmp_path), answers), [slice_device()])
    assert (reading.used_bytes, reading.total_bytes) == (None, None) and reading.missing["used_bytes"]
