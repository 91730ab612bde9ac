"""The case itself: what it learns, the same losses in every layout, and what it counts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from case_harness import CaseHarness, global_losses, reports, steps

CASE = CaseHarness("llama2_70b")

pytestmark = pytest.mark.run


def test_made_up_tokens_are_learnt_and_noise_is_not() -> None:
    learnt = [step.loss for step in steps(CASE.run(CASE.values()))]
    noise = [step.loss for step in steps(CASE.run(CASE.values(data__noise=1.0, training__max_steps=15)))]
    assert learnt[0] == pytest.approx(math.log(64), abs=0.3)
    assert learnt[-1] < 2.0
    assert min(noise) > math.log(64) - 0.4


STEPS = {"training__max_steps": 3}
REPLICAS = {**STEPS, "parallel__tp": 1, "parallel__pp": 2, "training__batch_size": 2}
"""PP2DP2, with half of each micro-batch on each replica. TP2PP2 is aligned by the real command, in tests/e2e."""


def test_two_replicas_of_two_stages_train_as_one_process_does(tmp_path: Path) -> None:
    alone = CASE.run(CASE.values(**STEPS))
    (ranks,) = CASE.run_ranks(tmp_path / "ranks", 4, [REPLICAS])
    counting = [events for events in ranks if steps(events)[0].samples]
    assert len(counting) == 2, "one rank of each replica counts what all of its ranks work on"
    assert global_losses(counting) == pytest.approx([step.loss for step in steps(alone)], abs=1e-5)
    for one, *others in zip(steps(alone), *map(steps, counting), strict=True):
        assert (one.samples, one.tokens) == (8, 256)
        assert (sum(step.samples for step in others), sum(step.tokens for step in others)) == (8, 256)
    assert [reports(events) for events in ranks] == [[{"bubble_theory": pytest.approx(1 / 3)}]] * 4
