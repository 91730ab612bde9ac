"""What a rank needs, by hand on numbers that a person can check."""

from __future__ import annotations

from flagperf_cases.decoder.estimate import Work, rank_bytes, stage_parameters
from flagperf_cases.decoder.shape import DecoderShape, Layout

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
    first, second = (rank_bytes(even, Layout(pp=4), stage, WORK)["activations"] for stage in (0, 1))
    assert first * 3 == second * 4


def test_recomputation_and_fewer_moments_need_less() -> None:
    long = DecoderShape(16, 8, 2, 1, 16, 32, 64)
    plain = rank_bytes(long, Layout(), 0, WORK)
    again = rank_bytes(long, Layout(), 0, Work(1, 4, recompute=True))
    assert again["activations"] < plain["activations"] / 4
    assert rank_bytes(long, Layout(), 0, Work(1, 4, moments=0))["optimizer state"] == 0
