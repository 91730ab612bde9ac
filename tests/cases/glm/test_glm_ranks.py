"""The same global batch gives the same result, however it is spread over ranks and micro-batches."""

from __future__ import annotations

import pytest
from case_harness import CaseHarness, Changes, reports, steps
from data_parallel_checks import Runs, check_accumulation, check_losses, optimizer_runs

CASE = CaseHarness("glm")

pytestmark = pytest.mark.run

COMMON = {
    "data__rows": 29,
    "data__eval_rows": 11,
    "model__width": 16,
    "training__max_samples": 58,
    "training__schedule_steps": 30,
    "evaluation__target": 1.0,
    "evaluation__every_samples": 29,
}
RATES = {"adamw": 5e-3, "sgd": 2.0}


def runs(world_size: int) -> list[Changes]:
    """12 rows in a step, 29 in an epoch. The schedule counts micro-batches, so twice as many are as many steps."""
    return optimizer_runs(COMMON, RATES, 12 // world_size, 6 // world_size, training__schedule_steps=60)


@pytest.fixture(scope="module")
def one_rank() -> Runs:
    return [[CASE.run(CASE.values(**changes))] for changes in runs(1)]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return CASE.run_ranks(tmp_path_factory.mktemp("ranks") / "two", 2, runs(2))


def test_accumulation_does_not_change_the_losses(one_rank: Runs) -> None:
    check_accumulation(one_rank)


def test_losses_do_not_depend_on_the_number_of_ranks(one_rank: Runs, two_ranks: Runs) -> None:
    check_losses(one_rank, two_ranks, num_steps=6)  # 3 in an epoch


def test_a_short_last_batch_counts_as_what_it_was(two_ranks: Runs) -> None:
    for ranks in two_ranks:
        by_step = list(zip(*(steps(events) for events in ranks), strict=True))
        assert [sum(step.samples for step in each) for each in by_step] == [12, 12, 5] * 2
        assert all(step.tokens > 0 for step in by_step[0])
        assert [step.samples for step in by_step[2]] == [3, 2]


def test_every_query_is_evaluated_once(one_rank: Runs, two_ranks: Runs) -> None:
    for alone, together in zip(one_rank, two_ranks, strict=True):
        expected = reports(alone[0])
        assert len(expected) == 3  # before training and after each 29 samples
        for events in together:
            assert [report["evaluated"] for report in reports(events)] == [11, 11, 11]
            assert [report["acc"] for report in reports(events)] == [report["acc"] for report in expected]
