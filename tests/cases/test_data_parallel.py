"""The same global batch gives the same result, however it is spread over ranks and micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import pytest
from case_harness import CaseHarness, Changes, global_losses, reports, steps

from flagperf.events import Event

pytestmark = pytest.mark.run

Runs = list[list[list[Event]]]
"""Events by run and rank."""


@dataclass(frozen=True)
class Training:
    """A short training: 12 rows in a step, a few steps in an epoch, three evaluations."""

    case: str
    common: Changes
    rates: Mapping[str, float]
    """Learning rate by optimizer."""
    samples: list[int]
    """In each step, over all ranks."""
    evaluated: int
    accumulating: Changes

    def runs(self, world_size: int) -> list[Changes]:
        """A run for each optimizer, then the same with two micro-batches in a step."""
        plain: list[Changes] = [
            {
                **self.common,
                "training__optimizer": name,
                "training__learning_rate": rate,
                "training__batch_size": 12 // world_size,
            }
            for name, rate in self.rates.items()
        ]
        halved = {"training__batch_size": 6 // world_size, "training__accumulate": 2, **self.accumulating}
        return [*plain, *({**each, **halved} for each in plain)]


TRAININGS = {
    "distilbert": Training(
        "distilbert",
        {
            "data__rows": 37,
            "data__eval_rows": 40,
            "evaluation__max_rows": 37,
            "training__epochs": 2,
            "evaluation__target": 1.0,
            "model__dropout": 0.0,
            "model__attention_dropout": 0.0,
            "model__classifier_dropout": 0.0,
        },
        {"adamw": 1e-3, "sgd": 0.1},
        [12, 12, 12, 1] * 2,
        evaluated=37,
        accumulating={},
    ),
    "glm": Training(
        "glm",
        {
            "data__rows": 29,
            "data__eval_rows": 11,
            "model__width": 16,
            "training__max_samples": 58,
            "training__schedule_steps": 30,
            "evaluation__target": 1.0,
            "evaluation__every_samples": 29,
        },
        {"adamw": 5e-3, "sgd": 2.0},
        [12, 12, 5] * 2,
        evaluated=11,
        accumulating={"training__schedule_steps": 60},  # it counts micro-batches
    ),
}
each_training = pytest.mark.parametrize("name", TRAININGS)
several = pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.full)])


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Runs]:
    folder = tmp_path_factory.mktemp("ranks")

    @cache
    def run(name: str, world_size: int) -> Runs:
        training, harness = TRAININGS[name], CaseHarness(TRAININGS[name].case)
        return harness.run_ranks(folder / f"{name} {world_size}", world_size, training.runs(world_size))

    return run


@each_training
def test_accumulation_does_not_change_the_losses(trained: Callable[[str, int], Runs], name: str) -> None:
    one_rank = trained(name, 1)
    half = len(one_rank) // 2
    for plain, accumulated in zip(one_rank[:half], one_rank[half:], strict=True):
        assert global_losses(accumulated) == pytest.approx(global_losses(plain), rel=1e-5)


@each_training
@several
def test_losses_do_not_depend_on_the_number_of_ranks(
    trained: Callable[[str, int], Runs], name: str, world_size: int
) -> None:
    for alone, together in zip(trained(name, 1), trained(name, world_size), strict=True):
        losses = global_losses(alone)
        assert len(losses) == len(TRAININGS[name].samples)
        assert losses[0] != pytest.approx(losses[-1], rel=1e-3)  # something was learned in between
        assert global_losses(together) == pytest.approx(losses, rel=1e-5)


@each_training
@several
def test_a_short_last_batch_counts_as_what_it_was(
    trained: Callable[[str, int], Runs], name: str, world_size: int
) -> None:
    for ranks in trained(name, world_size):
        by_step = list(zip(*(steps(events) for events in ranks), strict=True))
        assert [sum(step.samples for step in each) for each in by_step] == TRAININGS[name].samples
        assert all(step.tokens > 0 for step in by_step[0])
        for step in (step for each in by_step for step in each if not step.samples):
            assert step.tokens == 0 < step.padded_tokens, "a row that a rank repeats is padding"


@each_training
@several
def test_every_row_is_evaluated_once(trained: Callable[[str, int], Runs], name: str, world_size: int) -> None:
    for alone, together in zip(trained(name, 1), trained(name, world_size), strict=True):
        expected = reports(alone[0])
        assert len(expected) == 3  # before training and after each epoch
        for events in together:
            assert [report["evaluated"] for report in reports(events)] == [TRAININGS[name].evaluated] * 3
            assert [report["acc"] for report in reports(events)] == [report["acc"] for report in expected]
