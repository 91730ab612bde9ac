"""flagperf_cases.sampler: who trains which row when."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from flagperf_cases.sampler import MicroBatch, TrainingSampler, evaluation_rows, row_order, split_global_batch

SIZES = st.integers(1, 5)


def sampler(num_rows: int, rank: int = 0, world_size: int = 1, **changes: int) -> TrainingSampler:
    settings = {"batch_size": 2, "accumulate": 1, "epochs": 3, "max_steps": 0, "seed": 0, **changes}
    return TrainingSampler(num_rows, rank=rank, world_size=world_size, **settings)


def real_rows(step: list[MicroBatch]) -> list[int]:
    return [row for micro in step for row, weight in zip(micro.rows, micro.weights, strict=True) if weight]


@given(st.integers(1, 60), SIZES, SIZES, SIZES, st.integers(0, 3))
def test_every_row_is_trained_once_per_epoch(rows: int, world: int, batch: int, accumulate: int, epoch: int) -> None:
    seen: list[int] = []
    for rank in range(world):
        ranks_rows = sampler(rows, rank, world, batch_size=batch, accumulate=accumulate, epochs=4)
        ranks_rows.epoch = epoch
        seen += [row for step in ranks_rows for row in real_rows(step)]
    assert sorted(seen) == list(range(rows))


@given(st.integers(1, 60), SIZES)
def test_steps_hold_the_same_rows_for_any_number_of_ranks(num_rows: int, size: int) -> None:
    """6 x size rows in a step: on 1, 2 or 3 ranks, or accumulated."""
    layouts = [(1, 6 * size, 1), (2, 3 * size, 1), (3, 2 * size, 1), (1, size, 6), (2, size, 3)]
    by_layout = []
    for world, batch, accumulate in layouts:
        ranks = [sampler(num_rows, rank, world, batch_size=batch, accumulate=accumulate) for rank in range(world)]
        by_layout.append([sorted(chain.from_iterable(map(real_rows, steps))) for steps in zip(*ranks, strict=True)])
    assert all(steps == by_layout[0] for steps in by_layout)


@given(st.integers(1, 40), SIZES, st.integers(1, 8))
def test_all_ranks_take_part_in_every_backward_alike(num_rows: int, batch: int, world: int) -> None:
    shares = [split_global_batch(list(range(num_rows)), batch, rank, world) for rank in range(world)]
    shapes = [[len(micro.rows) for micro in micro_batches] for micro_batches in shares]
    assert all(shape == shapes[0] for shape in shapes)
    assert all(1 <= size <= batch for size in shapes[0])
    repeated = sum(weight == 0 for micro_batches in shares for micro in micro_batches for weight in micro.weights)
    assert repeated < world


@given(st.integers(1, 40), SIZES, st.integers(1, 8))
def test_scaled_losses_average_to_the_mean_over_real_rows(num_rows: int, batch: int, world: int) -> None:
    losses = {row: Fraction(row * row + 1) for row in range(num_rows)}
    total = Fraction(0)
    for rank in range(world):
        for micro in split_global_batch(list(losses), batch, rank, world):
            weighted = sum(losses[row] * weight for row, weight in zip(micro.rows, micro.weights, strict=True))
            total += weighted * Fraction(micro.scale)
    assert abs(total / world - sum(losses.values()) / num_rows) < 1e-9


def test_a_rank_without_rows_repeats_one_with_weight_0() -> None:
    (micro,) = split_global_batch([7], batch_size=4, rank=2, world_size=3)
    assert (micro.rows, micro.weights, micro.real_rows) == ([7], [0], 0)


def test_epochs_and_seeds_have_their_own_order_and_keep_it() -> None:
    assert row_order(50, seed=0, epoch=0) == row_order(50, seed=0, epoch=0)
    orders = [row_order(50, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_max_steps_ends_within_an_epoch_and_leaves_the_schedule_as_it_was() -> None:
    rows = sampler(10, max_steps=7)  # 5 steps an epoch
    assert (rows.planned_steps, rows.full_steps, rows.epochs) == (7, 15, 2)
    lengths = []
    for rows.epoch in range(2):
        assert len(rows) == len(list(rows))
        lengths.append(len(rows))
    assert lengths == [5, 2]


@given(st.integers(1, 60), st.integers(1, 8))
def test_every_row_is_evaluated_on_one_rank(num_rows: int, world: int) -> None:
    rows = [row for rank in range(world) for row in evaluation_rows(num_rows, rank, world)]
    assert sorted(rows) == list(range(num_rows))
