"""The same global batch gives the same result, however it is spread over ranks and micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_harness import CaseHarness, Changes, global_losses, reports, steps

from flagperf.events import Event

CASE = CaseHarness("distilbert")

pytestmark = pytest.mark.run

COMMON = {
    "data__rows": 37, "data__eval_rows": 37, "training__epochs": 2, "evaluation__target": 1.0,
    "model__dropout": 0.0, "model__attention_dropout": 0.0, "model__classifier_dropout": 0.0,
}  # fmt: skip
OPTIMIZERS = {"adamw": {"training__learning_rate": 1e-3}, "sgd": {"training__learning_rate": 0.1}}


def runs(batch_size: int, accumulated: int) -> list[Changes]:
    """Both optimizers in one go, then the same batch in two micro-batches; 12 rows in a step, 37 in an epoch."""
    plain = [
        {**COMMON, **rate, "training__optimizer": name, "training__batch_size": batch_size}
        for name, rate in OPTIMIZERS.items()
    ]
    return [*plain, *({**each, "training__batch_size": accumulated, "training__accumulate": 2} for each in plain)]


@pytest.fixture(scope="module")
def one_rank() -> list[list[list[Event]]]:
    return [[CASE.run(CASE.values(**changes))] for changes in runs(12, 6)]


@pytest.fixture(scope="module", params=[2, 3])
def several_ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[list[list[Event]]]:
    world = request.param
    folder: Path = tmp_path_factory.mktemp("ranks") / str(world)
    return CASE.run_ranks(folder, world, runs(12 // world, 6 // world))


def test_accumulation_does_not_change_the_losses(one_rank: list[list[list[Event]]]) -> None:
    for plain, accumulated in zip(one_rank[:2], one_rank[2:], strict=True):
        assert global_losses(accumulated) == pytest.approx(global_losses(plain), rel=1e-5)


def test_losses_do_not_depend_on_the_number_of_ranks(
    one_rank: list[list[list[Event]]], several_ranks: list[list[list[Event]]]
) -> None:
    for alone, together in zip(one_rank, several_ranks, strict=True):
        losses = global_losses(alone)
        assert len(losses) == 8  # 4 steps an epoch
        assert losses[0] != pytest.approx(losses[-1], rel=1e-3)  # something was learned between
        assert global_losses(together) == pytest.approx(losses, rel=1e-5)


def test_a_short_last_batch_counts_as_what_it_was(several_ranks: list[list[list[Event]]]) -> None:
    for ranks in several_ranks:
        world = len(ranks)
        by_step = list(zip(*(steps(events) for events in ranks), strict=True))
        assert [sum(step.samples for step in each) for each in by_step] == [12, 12, 12, 1] * 2
        for short in (by_step[3], by_step[7]):
            assert [step.samples for step in short] == [1] + [0] * (world - 1)
            assert all((step.tokens, step.padded_tokens) == (0, 32) for step in short[1:])
        rows = [[(step.tokens + step.padded_tokens) // 32 for step in each] for each in by_step]
        assert rows == ([[12 // world] * world] * 3 + [[1] * world]) * 2


def test_every_example_is_evaluated_once(
    one_rank: list[list[list[Event]]], several_ranks: list[list[list[Event]]]
) -> None:
    for alone, together in zip(one_rank, several_ranks, strict=True):
        expected = reports(alone[0])
        assert len(expected) == 3  # before training and after each epoch
        for events in together:
            assert [report["evaluated"] for report in reports(events)] == [37, 37, 37]
            assert reports(events) == expected
