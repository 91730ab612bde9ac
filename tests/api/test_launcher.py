from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagperf.api import Device, LaunchCommand, NodeShare, Setting
from flagperf.kit import near_cpus, read_cpu_list, write_cpu_list
from flagperf.testing import MachineFolder


def test_settings_win_over_what_is_inherited_and_removed_variables_are_gone_unless_they_are_set() -> None:
    command = LaunchCommand(("a",), (Setting("THREADS", "4", "why"), Setting("LOG", "0", "why")), ("DEBUG", "LOG"))
    inherited = {"THREADS": "64", "DEBUG": "1", "LOG": "1", "HOME": "/root"}
    assert command.environment(inherited) == {"THREADS": "4", "LOG": "0", "HOME": "/root"}
    assert inherited["THREADS"] == "64"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-2,5", {0, 1, 2, 5}), ("7", {7}), ("", set()), ("0-1,32-33\n", {0, 1, 32, 33}), ("all", set()), ("0-x", set())],
)
def test_the_kernels_lists(text: str, cpus: set[int]) -> None:
    assert read_cpu_list(text) == cpus


@given(st.sets(st.integers(0, 300)))
def test_what_is_written_reads_back(cpus: set[int]) -> None:
    assert read_cpu_list(write_cpu_list(cpus)) == cpus


def test_only_cpus_that_this_process_may_use_are_near(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    machine = (
        MachineFolder(tmp_path).pci("0000:07:00.0", "10ab", "0a01", "0302", local_cpus=f"{mine[0]},4000-4010").machine()
    )
    assert near_cpus(machine, "0000:07:00.0") == str(mine[0])
    assert near_cpus(machine, "0000:08:00.0") == near_cpus(machine, "") == ""


def share(*near: str, allowed_cores: int = 64) -> NodeShare:
    cards = tuple(Device(f"GPU-{index}", "A1", "A1", index, near_cpus=cpus) for index, cpus in enumerate(near))
    return NodeShare(0, 1, cards, "localhost", 1, allowed_cores, host_workers=len(cards))


def test_threads_are_an_even_part_of_the_cpus_near_the_card() -> None:
    assert share("0-31", "0-31", "32-63", "32-63").num_threads == 16
    assert share("0-31").num_threads == 32  # and not the 64 of the machine
    assert share("0-3", "0-3", "4-63").num_threads == 2
    assert share("", "").num_threads == 32
