"""The probe through mx-smi: whose figures these are, and what becomes of a tool that misbehaves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from metax_builders import (
    ANSWERS,
    GIB,
    MIB,
    SLICED_ANSWERS,
    card,
    metax_folder,
    replaced,
    slice_device,
    transcript,
    with_tool,
    without,
)

from flagperf.api import Availability, Device, Machine, Reading
from flagperf.errors import ToolFailed
from flagperf.kit import Tool
from flagperf.testing import Answer, MachineFolder
from flagperf_metax.memory import DMON, MxSmiProbe, MxSmiTableProbe

CARDS = (card(0), card(1))


def sample(machine: Machine, devices: Sequence[Device] = CARDS, probe: MxSmiProbe | None = None) -> list[Reading]:
    probe = probe or MxSmiProbe()
    assert probe.available(machine) == Availability(True)
    return probe.sample(devices, None)


def test_figures_belong_to_the_card_whatever_the_order(tmp_path: Path) -> None:
    machine = with_tool(metax_folder(tmp_path), used_bytes=[3 * GIB, 5 * GIB])
    first, second = sample(machine)
    assert (first.device_id, first.used_bytes, first.total_bytes) == (CARDS[0].id, 3 * GIB, 64 * GIB)
    assert (second.used_bytes, second.power_watts, second.temperature_celsius) == (5 * GIB, 58.625, 36.25)
    assert sample(machine, CARDS[::-1]) == [second, first]
    assert sample(machine, CARDS[1:]) == [second]


def test_where_json_fails_the_options_of_their_own_are_asked(tmp_path: Path) -> None:
    first, _ = sample(with_tool(metax_folder(tmp_path), without(ANSWERS, "-j")))
    assert (first.utilisation_percent, first.power_watts, first.temperature_celsius) == (97.0, 199.875, 61.5)


def test_where_json_has_something_else_among_the_supplies_the_board_power_is_asked(tmp_path: Path) -> None:
    text = transcript("json").replace('"Way2": "21.500"', '"Way2": "21.500", "Limit": "350.0"')
    board = Answer(("--show-board-power",), transcript("show_board_power").replace("199.875", "200.125"))
    first, second = sample(with_tool(metax_folder(tmp_path), replaced(ANSWERS, Answer(("-j",), text), board)))
    assert (first.power_watts, second.power_watts) == (200.125, 58.625)


def test_what_they_leave_out_is_asked_of_dmon(tmp_path: Path) -> None:
    answers = without(without(ANSWERS, "-j"), "--show-temperature")
    dmon = Answer(DMON.arguments, transcript("dmon_c500"))
    first, _ = sample(with_tool(metax_folder(tmp_path), (*answers, dmon)))
    assert (first.temperature_celsius, first.power_watts) == (61.0, 199.875)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(("-j",), "", "no permission\n", returncode=1),
        Answer(("-j",), "garbage\n"),
        Answer(("-j",), transcript("json")[:300]),
    ],
)
def test_a_figure_that_no_option_gives_is_missing_with_the_reason(tmp_path: Path, answer: Answer) -> None:
    only = without(without(without(ANSWERS, "--show-usage"), "--show-temperature"), "--show-board-power")
    first, _ = sample(with_tool(metax_folder(tmp_path), replaced(only, answer)))
    assert first.used_bytes == 0
    assert set(first.missing) == {"utilisation_percent", "power_watts", "temperature_celsius", "clock_mhz"}
    assert first.power_watts is None


def test_a_card_that_is_not_in_the_answer_has_no_number(tmp_path: Path) -> None:
    listed = Answer(("--show-memory",), transcript("show_memory_sysfs_error"))
    first, second = sample(with_tool(metax_folder(tmp_path), replaced(ANSWERS, listed)))
    assert first.used_bytes == 1 * GIB
    assert second.used_bytes is None
    assert "Sysfs error" in second.missing["used_bytes"]
    assert second.power_watts == 58.625


def test_memory_that_stops_to_answer_is_our_error(tmp_path: Path) -> None:
    folder = metax_folder(tmp_path)
    probe = MxSmiProbe()
    machine = with_tool(folder)
    assert probe.available(machine).available
    with_tool(folder, (Answer(("*",), transcript("show_memory")[:400]),))
    with pytest.raises(ToolFailed, match="End of Log"):
        probe.sample(CARDS, None)


def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    class ImpatientProbe(MxSmiProbe):
        tool = Tool(("mx-smi",), timeout_seconds=0.2)

    hanging = Answer(("*",), transcript("show_memory"), seconds=600)
    availability = ImpatientProbe().available(with_tool(metax_folder(tmp_path), (hanging,)))
    assert not availability.available
    assert "did not end within" in availability.reason


# --- which probe -----------------------------------------------------------------------------------------------------


def test_a_tool_on_a_machine_without_metax_is_taken_for_another_companys(tmp_path: Path) -> None:
    availability = MxSmiProbe().available(with_tool(MachineFolder(tmp_path)))
    assert not availability.available
    assert "another company" in availability.reason


def test_a_tool_that_does_not_name_metax_is_not_used(tmp_path: Path) -> None:
    other = Answer(("--show-memory",), transcript("show_memory").replace("MetaX", "Moffett"))
    assert not MxSmiProbe().available(with_tool(metax_folder(tmp_path), replaced(ANSWERS, other))).available


def test_without_the_tool_the_reason_says_where_it_was_looked_for(tmp_path: Path) -> None:
    assert "/opt/maca/bin" in MxSmiProbe().available(metax_folder(tmp_path).machine()).reason


@pytest.mark.parametrize("release", ["table_a0", "table_a1", "table_b", "table_c"])
def test_a_release_without_show_memory_is_read_through_its_table(tmp_path: Path, release: str) -> None:
    machine = with_tool(metax_folder(tmp_path), (Answer((), transcript(release)),))
    assert "--show-memory" in MxSmiProbe().available(machine).reason
    first, second = sample(machine, probe=MxSmiTableProbe())
    assert (first.used_bytes, first.total_bytes, first.power_watts) == (1 * GIB, 64 * GIB, 199.0)
    assert (second.used_bytes, second.utilisation_percent, second.temperature_celsius) == (2 * GIB, 0.0, 36.0)


# --- slices ----------------------------------------------------------------------------------------------------------

SLICED = (*SLICED_ANSWERS, Answer(("--show-memory",), transcript("show_memory")))


@pytest.mark.parametrize("probe", [MxSmiProbe, MxSmiTableProbe])
def test_a_slice_has_its_own_use_and_quota_and_never_its_cards(tmp_path: Path, probe: type[MxSmiProbe]) -> None:
    (reading,) = sample(with_tool(metax_folder(tmp_path), SLICED), [slice_device()], probe())
    assert (reading.used_bytes, reading.total_bytes) == (512 * MIB, 32000 * MIB)
    assert reading.utilisation_percent == 40.0
    assert (reading.power_watts, reading.temperature_celsius) == (None, None)
    assert "whole card" in reading.missing["power_watts"]


def test_a_slice_that_the_table_does_not_list_has_no_number(tmp_path: Path) -> None:
    answers = replaced(SLICED, Answer((), transcript("table_c")))
    (reading,) = sample(with_tool(metax_folder(tmp_path), answers), [slice_device()])
    assert (reading.used_bytes, reading.total_bytes) == (None, None)
    assert reading.missing["used_bytes"]


def test_the_tool_is_called_in_the_c_locale_and_without_a_shell(tmp_path: Path) -> None:
    machine = metax_folder(tmp_path)
    tool = machine.root / "bin" / "mx-smi"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$LC_ALL $*" >> "$(dirname "$0")/calls"\ncat "$(dirname "$0")/answer"\n')
    tool.chmod(0o755)
    (tool.parent / "answer").write_text(transcript("show_memory"))
    environ = {"PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}"}
    assert MxSmiProbe().available(machine.machine(environ)).available
    assert (tool.parent / "calls").read_text() == "C --show-memory\n"


def test_the_clock_comes_with_the_other_figures_of_json(tmp_path: Path) -> None:
    first, second = sample(with_tool(metax_folder(tmp_path), ANSWERS))
    assert (first.clock_mhz, second.clock_mhz) == (1500.0, 1500.0)
