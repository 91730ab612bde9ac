from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagperf.kit import near_cpus, read_cpu_list, write_cpu_list
from flagperf.testing import MachineFolder


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
