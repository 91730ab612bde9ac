"""Collectives on forked ranks: what is measured, what is proved, and what happens when something fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_harness import CaseHarness
from linked_ranks import Work, measured_rows
from rank_processes import answers_of_ranks

from flagperf.events import RowMeasured
from flagperf.worker import WrongOutput
from flagperf_cases.collectives.data import OPERATIONS
from flagperf_cases.number_cycle import check_message, message, number_cycle, shifted, summed

IMPORTS = ["flagperf_cases.collectives.case", "case_harness"]
HARNESS = CaseHarness("collectives")


def rows_of_ranks(folder: Path, world_size: int, *works: Work) -> list[list[list[RowMeasured]]]:
    return answers_of_ranks(folder, world_size, measured_rows, works, IMPORTS)


def few(*operations: str) -> dict[str, object]:
    return {"collectives__precisions": ["fp32"], "collectives__operations": list(operations)}


def statuses(rows: list[RowMeasured]) -> list[str]:
    return [row.status for row in rows]


def test_every_element_of_every_operation_is_exact_and_the_bytes_are_those_of_the_definitions(tmp_path: Path) -> None:
    """Three ranks: 24 KiB are three parts of 8 KiB."""
    (ranks,) = rows_of_ranks(tmp_path / "ranks", 3, Work("collectives", 3, {}))
    moved = {"all_reduce": 32, "all_gather": 16, "reduce_scatter": 16, "all_to_all": 16, "broadcast": 24}
    for rows in ranks:
        assert [row.labels["operation"] for row in rows] == [name for name in OPERATIONS for _ in ("fp32", "bf16")]
        for row in rows:
            assert (row.status, row.problem) == ("ok", "")
            assert row.work == {"bytes": 24 << 10, "bus_bytes": moved[row.labels["operation"]] << 10}
            assert "exact" in row.facts["check"] and len(row.values) >= 10
            assert (row.labels["scope"], row.labels["ranks"]) == ("node", "3")
            assert row.limits == {"bus_bytes": "link_bandwidth"}
    assert len({row.timing.calls * len(row.values) for rows in ranks for row in rows[:1]}) == 1  # equally many calls


def test_on_two_nodes_each_is_measured_for_itself_and_then_all_ranks(tmp_path: Path) -> None:
    (ranks,) = rows_of_ranks(tmp_path / "ranks", 4, Work("collectives", 2, few("all_to_all", "broadcast")))
    for rows in ranks:
        assert {row.status for row in rows} == {"ok"}
        assert [(row.labels["scope"], row.labels["ranks"]) for row in rows[::2]] == [("node", "2"), ("nodes", "4")]
        assert {row.labels["scope"]: row.limits for row in rows}["nodes"] == {}


def test_what_fails_is_a_row_that_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    faults = {"unsupported": "all_to_all", "one element wrong": "all_reduce", "no memory": "all_gather"}
    works = [Work("collectives", 2, few(operation, "broadcast"), fault) for fault, operation in faults.items()]
    lacking, wrong, no_memory = rows_of_ranks(tmp_path / "ranks", 2, *works)
    assert [statuses(rows) for rows in lacking] == [["unsupported", "ok"]] * 2
    assert [statuses(rows) for rows in wrong] == [["ok", "ok"], ["invalid", "ok"]]
    assert wrong[1][0].problem == "1 of 6,144 elements are wrong"
    assert [statuses(rows) for rows in no_memory] == [["out_of_memory", "ok"]] * 2
    assert no_memory[0][0].problem == "another rank could not prepare it; see the row of that rank"
    assert no_memory[1][0].problem == "MemoryError: no room"


def test_calls_that_do_nothing_after_the_first_are_found(tmp_path: Path) -> None:
    """The first rank of a broadcast has what it sends."""
    names = ("all_gather", "reduce_scatter", "all_to_all", "broadcast")
    works = [Work("collectives", 2, few(name, "all_reduce"), "only the first call") for name in names]
    for name, ranks in zip(names, rows_of_ranks(tmp_path / "ranks", 2, *works), strict=True):
        first = "ok" if name == "broadcast" else "invalid"
        assert [statuses(rows) for rows in ranks] == [[first, "ok"], ["invalid", "ok"]], name
        assert "elements are wrong" in ranks[1][0].problem


def test_a_rank_that_fails_alone_in_a_call_ends_the_run(tmp_path: Path) -> None:
    why = "rank 1 failed in a call that other ranks take part in: RuntimeError: cable pulled out"
    with pytest.raises(AssertionError, match=why):
        rows_of_ranks(tmp_path / "ranks", 2, Work("collectives", 2, {}, "alone"))


@pytest.mark.parametrize("num_ranks", [2, 3, 64, 1000])
@pytest.mark.parametrize(("dtype", "exact"), [(torch.bfloat16, 256), (torch.float32, 1 << 24)])
def test_no_sum_of_some_ranks_in_any_order_is_rounded(num_ranks: int, dtype: torch.dtype, exact: int) -> None:
    cycle = number_cycle(0, dtype, num_ranks)
    largest = summed(cycle.abs(), num_ranks).max()
    assert 0 < largest <= exact
    assert cycle.unique().numel() >= 3


def test_a_message_in_the_wrong_place_is_noticed() -> None:
    cycle = number_cycle(0, torch.float32, 2)
    received = torch.cat([message(shifted(cycle, shift), 30_000, torch.float32, "cpu") for shift in (0, 1)])
    assert check_message(received, [cycle, shifted(cycle, 1)]) == {"check": "all 60,000 elements exact"}
    with pytest.raises(WrongOutput, match="of 60,000 elements are wrong"):
        check_message(received, [shifted(cycle, 1), cycle])
    with pytest.raises(WrongOutput, match=r"^60,000 of"):
        check_message(torch.full_like(received, torch.nan), [cycle, cycle])
