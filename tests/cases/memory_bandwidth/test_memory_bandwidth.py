"""memory_bandwidth on the CPU: what is timed, and what its checks refuse."""

from __future__ import annotations

import pytest
import torch
from case_harness import CaseHarness, SmallCache, rows

from flagperf.worker import WrongOutput
from flagperf_cases.memory_bandwidth.case import PATTERNS
from flagperf_cases.sizes import MIB

CASE = CaseHarness("memory_bandwidth")
LENGTH = 5000


def test_every_pattern_counts_the_bytes_that_it_moves() -> None:
    found = rows(CASE.run(CASE.quick(), backend=SmallCache()))
    assert {row.status for row in found} == {"ok"}
    moved = {(row.labels["pattern"], row.labels["class"]): row.work["bytes"] for row in found}
    assert {name: moved[name, "headline"] for name in PATTERNS} == {
        "copy": 2 * MIB, "read": MIB, "write": MIB, "triad": 3 * MIB,
    }  # fmt: skip
    assert moved["copy", "sweep"] == 8192
    assert {row.labels["cache"] for row in found if row.labels["class"] == "headline"} == {"cold"}
    assert {row.labels["cache"] for row in found if row.labels["class"] == "sweep"} == {"hot"}
    assert {row.limits["bytes"] for row in found} == {"memory_bandwidth"}


def test_the_headline_is_at_least_so_many_caches_of_whole_mib() -> None:
    changes = {"memory_bandwidth__headline_caches": 20, "memory_bandwidth__patterns": ["copy"]}
    headline, other = rows(CASE.run(CASE.quick(**changes), backend=SmallCache()))
    assert headline.labels["bytes"] == str(3 * MIB) and other.labels["bytes"] == "4096"


@pytest.mark.parametrize("name", PATTERNS)
def test_what_the_first_call_left_is_wrong_after_any_number_of_calls(name: str) -> None:
    call, check = PATTERNS[name].make(LENGTH, "cpu")
    first = call()[0].clone()
    for _ in range(16):
        output = call()
        check(output)
        output[0].copy_(first)
        with pytest.raises(WrongOutput):
            check(output)


@pytest.mark.parametrize("name", ["copy", "write", "triad"])
def test_one_wrong_element_is_noticed(name: str) -> None:
    call, check = PATTERNS[name].make(LENGTH, "cpu")
    output = call()
    output[0][LENGTH - 1] = torch.nextafter(output[0][LENGTH - 1], torch.tensor(1e9)) + 1e-3
    with pytest.raises(WrongOutput):
        check(output)
