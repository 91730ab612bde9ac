"""The same global batch gives the same result, however it is spread over ranks and micro-batches."""

from __future__ import annotations

import pytest
from case_harness import CaseHarness, Changes, global_losses, reports, steps

from flagperf.events import Event

CASE = CaseHarness("glm")

pytestmark = pytest.mark.run

COMMON = {
    "data__rows": 29, "data__eval_rows": 11, "model__width": 16, "training__max_samples": 58,
    "training__schedule_steps": 30, "evaluation__target": 1.0, "evaluation__every_samples": 29,
}  # fmt: skip
OPTIMIZERS = {"adamw": {"training__learning_rate": 5e-3}, "sgd": {"training__learning_rate": 2.0}}


def runs(batch_size: int, accumulated: int) -> list[Changes]:
    """Both optimizers in one go, then the same batch in two micro-batches; 12 rows in a step, 29 in an epoch."""
    plain = [
        {**COMMON, **rate, "training__optimizer": name, "training__batch_size": batch_size}
        for name, rate in OPTIMIZERS.items()
    ]
    # The schedule counts micro-batches, so that twice as many are as many steps.
    halved = {"training__batch_size": accumulated, "training__accumulate": 2, "training__schedule_steps": 60}
    return [*plain, *({**each, **halved} for each in plain)]


@pytest.fixture(scope="module")
def one_rank() -> list[list[list[Event]]]:
    return [[CASE.run(CASE.values(**changes))] for changes in runs(12, 6)]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[Event]]]:
    return CASE.run_ranks(tmp_path_factory.mktemp("ranks") / "two", 2, runs(6, 3))


def test_accumulation_does_not_change_the_losses(one_rank: list[list[list[Event]]]) -> None:
    for plain, accumulated in zip(one_rank[:2], one_rank[2:], strict=True):
        assert global_losses(accumulated) == pytest.approx(global_losses(plain), rel=1e-5)


def test_losses_do_not_depend_on_the_number_of_ranks(
    one_rank: list[list[list[Event]]], two_ranks: list[list[list[Event]]]
) -> None:
    for alone, together in zip(one_rank, two_ranks, strict=True):
        losses = global_losses(alone)
        assert len(losses) == 6  # 3 steps an epoch
        assert losses[0] != pytest.approx(losses[-1], rel=1e-3)  # something was learned between
        assert global_losses(together) == pytest.approx(losses, rel=1e-5)


def test_a_short_last_batch_counts_as_what_it_was(two_ranks: list[list[list[Event]]]) -> None:
    for ranks in two_ranks:
        by_step = list(zip(*(steps(events) for events in ranks), strict=True))
        assert [sum(step.samples for step in each) for each in by_step] == [12, 12, 5] * 2
        assert all(step.tokens > 0 for step in by_step[0])
        assert [step.samples for step in by_step[2]] == [3, 2]


def test_every_query_is_evaluated_once(one_rank: list[list[list[Event]]], two_ranks: list[list[list[Event]]]) -> None:
    for alone, together in zip(one_rank, two_ranks, strict=True):
        expected = reports(alone[0])
        assert len(expected) == 3  # before training and after each 29 samples
        for events in together:
            assert [report["evaluated"] for report in reports(events)] == [11, 11, 11]
            assert [report["acc"] for report in reports(events)] == [report["acc"] for report in expected]
