"""The same global batch gives the same result, however it is spread over ranks and micro-batches."""

from __future__ import annotations

import pytest
from case_harness import CaseHarness, Changes, reports, steps
from data_parallel_checks import Runs, check_accumulation, check_losses, optimizer_runs

CASE = CaseHarness("distilbert")

pytestmark = pytest.mark.run

COMMON = {
    "data__rows": 37,
    "data__eval_rows": 37,
    "training__epochs": 2,
    "evaluation__target": 1.0,
    "model__dropout": 0.0,
    "model__attention_dropout": 0.0,
    "model__classifier_dropout": 0.0,
}
RATES = {"adamw": 1e-3, "sgd": 0.1}


def runs(world_size: int) -> list[Changes]:
    """12 rows in a step, 37 in an epoch."""
    return optimizer_runs(COMMON, RATES, 12 // world_size, 6 // world_size)


@pytest.fixture(scope="module")
def one_rank() -> Runs:
    return [[CASE.run(CASE.values(**changes))] for changes in runs(1)]


@pytest.fixture(scope="module", params=[2, 3])
def several_ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return CASE.run_ranks(tmp_path_factory.mktemp("ranks") / "group", request.param, runs(request.param))


def test_accumulation_does_not_change_the_losses(one_rank: Runs) -> None:
    check_accumulation(one_rank)


def test_losses_do_not_depend_on_the_number_of_ranks(one_rank: Runs, several_ranks: Runs) -> None:
    check_losses(one_rank, several_ranks, num_steps=8)  # 4 in an epoch


def test_a_short_last_batch_counts_as_what_it_was(several_ranks: Runs) -> None:
    for ranks in several_ranks:
        world = len(ranks)
        by_step = list(zip(*(steps(events) for events in ranks), strict=True))
        assert [sum(step.samples for step in each) for each in by_step] == [12, 12, 12, 1] * 2
        for short in (by_step[3], by_step[7]):
            assert [step.samples for step in short] == [1] + [0] * (world - 1)
            assert all((step.tokens, step.padded_tokens) == (0, 32) for step in short[1:])
        rows = [[(step.tokens + step.padded_tokens) // 32 for step in each] for each in by_step]
        assert rows == ([[12 // world] * world] * 3 + [[1] * world]) * 2


def test_every_example_is_evaluated_once(one_rank: Runs, several_ranks: Runs) -> None:
    for alone, together in zip(one_rank, several_ranks, strict=True):
        expected = reports(alone[0])
        assert len(expected) == 3  # before training and after each epoch
        for events in together:
            assert [report["evaluated"] for report in reports(events)] == [37, 37, 37]
            assert reports(events) == expected
