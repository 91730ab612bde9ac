"""The case itself: what it learns, the same losses in every layout, and what it counts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from case_harness import reports, steps
from llama2_70b_harness import run_case, run_ranks, values

pytestmark = pytest.mark.run


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


def test_made_up_tokens_are_learnt_and_noise_is_not() -> None:
    learnt = [step.loss for step in steps(run_case(values()))]
    noise = [step.loss for step in steps(run_case(values(data__noise=1.0, training__max_steps=15)))]
    assert learnt[0] == pytest.approx(math.log(64), abs=0.3)
    assert learnt[-1] < 2.0
    assert min(noise) > math.log(64) - 0.4


def test_four_ranks_at_tp2_pp2_train_as_one_process_does(tmp_path: Path) -> None:
    changes = {"training__max_steps": 6}
    alone = run_case(values(**changes))
    (ranks,) = run_ranks(tmp_path / "ranks", 4, [changes])
    counting = [events for events in ranks if steps(events)[0].samples]
    assert len(counting) == 1, "one rank counts what four work on"
    losses = [step.loss for step in steps(counting[0])]
    assert losses == pytest.approx([step.loss for step in steps(alone)], abs=1e-5)
    for first, second in zip(steps(alone), steps(counting[0]), strict=True):
        assert (first.samples, first.tokens) == (second.samples, second.tokens) == (8, 256)
    assert [reports(events) for events in ranks] == [[{"bubble_theory": pytest.approx(1 / 3)}]] * 4
