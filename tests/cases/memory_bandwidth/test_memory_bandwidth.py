"""memory_bandwidth on the CPU: what is timed, and what its checks refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from case_harness import CaseHarness, refusal, rows

from flagperf.builtin.cpu import CpuBackend
from flagperf.worker import WrongOutput
from flagperf_cases.memory_bandwidth.case import PATTERNS
from flagperf_cases.memory_bandwidth.data import check_files
from flagperf_cases.sizes import MIB

CASE = CaseHarness("memory_bandwidth")
QUICK: dict[str, Any] = {
    "measure__seconds": 0.01,
    "measure__min_samples": 10,
    "measure__warmup_seconds": 0.0,
    "measure__warmup_cap_seconds": 0.01,
    "memory_bandwidth__headline": "1MiB",
    "memory_bandwidth__sizes": ["4KiB"],
}
LENGTH = 5000


class SmallCache(CpuBackend):
    def cache_bytes(self) -> int | None:
        return MIB // 8


def test_every_pattern_counts_the_bytes_that_it_moves() -> None:
    found = rows(CASE.run(CASE.values(**QUICK), backend=SmallCache()))
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
    headline, other = rows(CASE.run(CASE.values(**QUICK, **changes), backend=SmallCache()))
    assert headline.labels["bytes"] == str(3 * MIB) and other.labels["bytes"] == "4096"


def test_standard_is_at_least_1_gib_and_16_caches() -> None:
    values = CASE.values("standard")["memory_bandwidth"]
    assert (values["headline"], values["headline_caches"]) == ("1GiB", 16)


def test_what_would_take_half_of_the_hosts_memory_is_out_of_memory_and_the_next_row_runs() -> None:
    found = rows(CASE.run(CASE.values(**QUICK), memory_bytes=5 * MIB))
    by_row = {(row.labels["pattern"], row.labels["class"]): row for row in found}
    assert by_row["triad", "headline"].status == "out_of_memory"
    assert "more than half of the host's" in by_row["triad", "headline"].problem
    assert by_row["copy", "headline"].status == by_row["triad", "sweep"].status == "ok"


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


def test_two_ranks_measure_alone_and_together(tmp_path: Path) -> None:
    (ranks,) = CASE.run_ranks(tmp_path / "ranks", 2, [{**QUICK, "memory_bandwidth__patterns": ["copy"]}])
    for events in ranks:
        assert [row.labels["devices"] for row in rows(events)] == ["single"] * 2 + ["all"] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_bandwidth__patterns": ["copy", "raed"]}, "unknown pattern of memory_bandwidth 'raed'"),
        ({"memory_bandwidth__patterns": []}, "memory_bandwidth.patterns is empty"),
        ({"memory_bandwidth__sizes": ["4KiB", "9B"]}, "memory_bandwidth.sizes: '9B' is no size"),
        ({"memory_bandwidth__headline": "4098"}, "memory_bandwidth.headline: '4098' is no size"),
    ],
)
def test_bad_values_are_refused_before_a_worker_starts(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(check_files, None, CASE.values(**changes))
