"""Transfers between two ranks: which pairs, what is proved, and that the others wait."""

from __future__ import annotations

from pathlib import Path

from case_harness import CaseHarness
from linked_ranks import Work, measured_rows
from rank_processes import answers_of_ranks

from flagperf.events import RowMeasured
from flagperf_cases.peer_to_peer.data import planned_transfers

IMPORTS = ["flagperf_cases.peer_to_peer.case", "case_harness"]
HARNESS = CaseHarness("peer_to_peer")


def pair(row: RowMeasured) -> tuple[int, int]:
    return int(row.labels["from"]), int(row.labels["to"])


def test_every_ordered_pair_of_three_is_measured_by_both_of_its_ranks(tmp_path: Path) -> None:
    (ranks,) = answers_of_ranks(
        tmp_path / "ranks", 3, measured_rows, [Work("peer_to_peer", 3, {"peer_to_peer__sizes": ["4KiB"]})], IMPORTS
    )
    for rank, rows in enumerate(ranks):
        assert all((row.status, row.problem) == ("ok", "") and rank in pair(row) for row in rows)
        headline = [row for row in rows if row.labels["class"] == "headline"]
        one_way = {pair(row) for row in headline if row.labels["direction"] == "one-way"}
        others = [other for other in range(3) if other != rank]
        assert one_way == {(rank, other) for other in others} | {(other, rank) for other in others}
        for row in rows:
            size = int(row.labels["bytes"])
            both = row.labels["direction"] == "both"
            assert row.work == {"bytes": 2 * size if both else size, "bus_bytes": size}
            assert both or row.facts["role"] == ("sends" if pair(row)[0] == rank else "receives")
            assert row.facts["role"] == "sends" or "exact" in row.facts["check"]
    assert [len(rows) for rows in ranks] == [8, 8, 6]  # the first pair has another size, one-way and both ways


def test_between_nodes_equal_places_are_measured_one_by_one_and_all_at_once(tmp_path: Path) -> None:
    (ranks,) = answers_of_ranks(tmp_path / "ranks", 4, measured_rows, [Work("peer_to_peer", 2, {})], IMPORTS)
    between = [[row for row in rows if row.labels["scope"] == "nodes"] for rows in ranks]
    assert {row.status for rows in ranks for row in rows} == {"ok"}
    for rank, rows in enumerate(between):
        other = (rank + 2) % 4
        assert {pair(row) for row in rows} == {(rank, other), (other, rank)}
        assert {row.labels["pairs"] for row in rows} == {"one", "all"}
        assert all(row.limits == {} for row in rows)


def test_calls_that_do_nothing_after_the_first_are_found_by_those_that_receive(tmp_path: Path) -> None:
    work = Work("peer_to_peer", 2, {}, "only the first call")
    (ranks,) = answers_of_ranks(tmp_path / "ranks", 2, measured_rows, [work], IMPORTS)
    for rank, rows in enumerate(ranks):
        for row in rows:
            sends = row.labels["direction"] == "one-way" and pair(row)[0] == rank
            assert row.status == ("ok" if sends else "invalid"), row


def test_what_is_planned_for_eight_devices() -> None:
    planned = planned_transfers(HARNESS.values("standard"), [list(range(8))])
    headline = [transfer for transfer in planned if transfer.kind == "headline"]
    assert len([each for each in headline if each.direction == "one-way"]) == 56
    assert len([each for each in headline if each.direction == "both"]) == 28
    assert {each.pairs for each in planned if each.kind == "sweep"} == {((0, 1),)}
    assert sorted({each.size for each in planned})[:: len({each.size for each in planned}) - 1] == [4 << 10, 1 << 30]
