"""Checks that every data parallel case has to pass: the same global batch gives the same result, however it is spread
over ranks and micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from case_harness import Changes, global_losses

from flagperf.events import Event

Runs = list[list[list[Event]]]
"""Events by run and rank."""


def optimizer_runs(
    common: Changes, rates: Mapping[str, float], batch_size: int, micro_batch_size: int, **accumulating: Any
) -> list[Changes]:
    """A run for each optimizer, then the same with two micro-batches in a step. `accumulating` changes only these."""
    plain = [
        {
            **common,
            "training__optimizer": name,
            "training__learning_rate": rate,
            "training__batch_size": batch_size,
        }
        for name, rate in rates.items()
    ]
    halved = {"training__batch_size": micro_batch_size, "training__accumulate": 2, **accumulating}
    return [*plain, *({**each, **halved} for each in plain)]


def check_accumulation(one_rank: Runs) -> None:
    half = len(one_rank) // 2
    for plain, accumulated in zip(one_rank[:half], one_rank[half:], strict=True):
        assert global_losses(accumulated) == pytest.approx(global_losses(plain), rel=1e-5)


def check_losses(one_rank: Runs, several_ranks: Runs, num_steps: int) -> None:
    for alone, together in zip(one_rank, several_ranks, strict=True):
        losses = global_losses(alone)
        assert len(losses) == num_steps
        assert losses[0] != pytest.approx(losses[-1], rel=1e-3)  # something was learned in between
        assert global_losses(together) == pytest.approx(losses, rel=1e-5)
