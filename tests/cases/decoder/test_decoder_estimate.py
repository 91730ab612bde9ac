"""What a rank needs: by hand on numbers that a person can check, and against tensors of the case as it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness
from tensor_bytes import case_bytes

from flagperf_cases.decoder.estimate import Work, estimate, rank_bytes, stage_parameters
from flagperf_cases.decoder.layout import DecoderShape, Layout

SHAPE = DecoderShape(layers=3, width=8, heads=2, kv_heads=1, ffn=16, vocabulary=32, sequence=4)
LAYER = 2 * 64 + 2 * 8 * 4 + 3 * 8 * 16 + 16
WORK = Work(micro_batch=1, num_micro_batches=4)


def test_stages_have_all_parameters_between_them() -> None:
    assert SHAPE.layer_parameters == LAYER
    counts = [stage_parameters(SHAPE, Layout(pp=2), stage) for stage in (0, 1)]
    assert counts == [2 * LAYER + 256, LAYER + 256 + 8]
    assert sum(counts) == SHAPE.parameters == stage_parameters(SHAPE, Layout(), 0)


def test_norms_are_on_every_tensor_parallel_rank() -> None:
    assert stage_parameters(SHAPE, Layout(tp=2), 0) == SHAPE.parameters // 2 + (3 * 16 + 8) // 2


def test_data_parallel_ranks_share_weights_and_optimizer_state() -> None:
    one, two = (rank_bytes(SHAPE, layout, 0, WORK) for layout in (Layout(), Layout(dp=2)))
    assert two["optimizer state"] == one["optimizer state"] // 2 == 4 * SHAPE.parameters
    assert one["parameters"] == 4 * SHAPE.parameters


def test_mixed_precision_keeps_a_copy_of_the_weights() -> None:
    mixed = Work(1, 4, compute_bytes=2)
    assert rank_bytes(SHAPE, Layout(), 0, mixed)["parameters"] == 6 * SHAPE.parameters


def test_earlier_stages_hold_more_micro_batches() -> None:
    even = DecoderShape(4, 8, 2, 1, 16, 2, 4)
    block = 4 * (2 * 8 * 8 + 2 * 8 * 4 + (16 + 8) * 4 + 4 * 16 * 4)  # norms, gathered, attention, feed-forward
    first, second, third = (rank_bytes(even, Layout(pp=4), stage, WORK)["activations"] for stage in (0, 1, 2))
    states = 4 * 8 * 4  # of a micro-batch; the first stage receives none from before it
    assert (first - second, second - third) == (block - 3 * states, block + states)


def test_memory_does_not_grow_with_the_number_of_micro_batches() -> None:
    few, many = (rank_bytes(SHAPE, Layout(pp=3), 1, Work(1, count)) for count in (4, 1004))
    assert few == many


def test_with_one_micro_batch_gradients_take_the_place_of_activations() -> None:
    one, two = (rank_bytes(SHAPE, Layout(), 0, Work(1, count)) for count in (1, 2))
    assert one["gradients"] == two["gradients"]
    assert one["activations"] == max(0, two["activations"] - two["gradients"])


def test_recomputation_and_fewer_moments_need_less() -> None:
    long = DecoderShape(16, 8, 2, 1, 16, 32, 64)
    plain = rank_bytes(long, Layout(), 0, WORK)
    again = rank_bytes(long, Layout(), 0, Work(1, 4, recompute=True))
    assert again["activations"] < plain["activations"] / 4
    assert rank_bytes(long, Layout(), 0, Work(1, 4, moments=0))["optimizer state"] == 0


SIZES = {"layers": 3, "width": 96, "heads": 8, "kv_heads": 4, "ffn": 288, "vocabulary": 256, "sequence": 128}
STEPS = {"batch_size": 1, "accumulate": 2, "max_steps": 2, "warmup_steps": 0}
BASE = {
    **{f"model__{name}": size for name, size in SIZES.items()},
    **{f"training__{name}": value for name, value in STEPS.items()},
    "data__tokens": 20000,
}
DP2, TP2, PP2 = ({"parallel__tp": tp, "parallel__pp": pp} for tp, pp in ((1, 1), (2, 1), (1, 2)))
MIXED, AGAIN = {"precision": "amp-bf16"}, {"model__recompute": True}
RUNS: dict[int, list[dict[str, Any]]] = {
    1: [{}, MIXED, {**MIXED, **AGAIN}],
    2: [
        DP2,
        {**DP2, "training__accumulate": 1},
        {**DP2, **MIXED},
        {**DP2, **AGAIN},
        TP2,
        {**TP2, **MIXED, **AGAIN},
        {**PP2, "training__accumulate": 4, **AGAIN},
        {**PP2, "training__accumulate": 8, **MIXED},
    ],
    4: [{}, {**MIXED, "training__accumulate": 4}, TP2, PP2],  # TP2PP2 twice, TP2DP2, PP2DP2
}


@pytest.mark.run
@pytest.mark.parametrize("world_size", [1, 2, pytest.param(4, marks=pytest.mark.full)])
def test_the_estimate_is_near_the_tensors_of_the_case_as_it_runs(world_size: int, tmp_path: Path) -> None:
    runs = [{**BASE, **changes} for changes in RUNS[world_size]]
    measured = case_bytes(tmp_path / "ranks", world_size, "llama2_70b", runs)
    for changes, run, found in zip(RUNS[world_size], runs, measured, strict=True):
        parts = estimate(CaseHarness("llama2_70b").values(devices=world_size, **run))
        assert sum(parts.values()) == pytest.approx(found, rel=0.15), (changes, parts, found)
