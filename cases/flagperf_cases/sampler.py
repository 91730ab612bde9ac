"""Decide which rows each rank trains in each optimizer step. The result does not depend on the number of ranks.

An epoch is one order of all rows: shuffled by (seed, epoch), or the order of the file. It is cut into global batches of
batch_size x accumulate x world_size rows, and the rows of a global batch are dealt to the ranks in turn. With the same
global batch size, 1, 2 or 8 ranks therefore train the same rows in the same steps.

Every rank has to take part in every backward pass. If the last global batch is too short for that, a rank repeats a row
with weight 0, which the case masks out of the loss and the counts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from flagperf.worker import Context

Batch = dict[str, Any]
"""A micro-batch as the model takes it, with `samples`, `tokens` and `padded_tokens` as plain numbers."""


@dataclass(frozen=True)
class MicroBatch:
    """Names the rows of one forward and backward pass of one rank.

    Call backward on `sum(weight * loss of row) * scale`. Averaged over the ranks by data parallel training, and summed
    over the micro-batches, this is the mean over the real rows of the global batch.
    """

    rows: list[int]
    weights: list[int]
    scale: float

    @property
    def real_rows(self) -> int:
        return sum(self.weights)


class TrainingSampler:
    """Each item is one optimizer step of this rank: the list of its micro-batches. Set `epoch` before iterating."""

    def __init__(
        self,
        num_rows: int,
        *,
        batch_size: int,
        accumulate: int,
        epochs: int,
        max_steps: int,
        seed: int,
        rank: int,
        world_size: int,
        shuffle: bool = True,
    ) -> None:
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.rank = rank
        self.world_size = world_size
        self.global_batch = batch_size * accumulate * world_size
        self.steps_per_epoch = math.ceil(num_rows / self.global_batch)
        self.full_steps = self.steps_per_epoch * epochs
        """Steps of all epochs. The learning rate schedule covers them even if `max_steps` ends the run earlier."""
        self.planned_steps = min(self.full_steps, max_steps) if max_steps else self.full_steps
        self.epochs = math.ceil(self.planned_steps / self.steps_per_epoch)
        self.epoch = 0

    @classmethod
    def for_run(
        cls, ctx: Context, num_rows: int, *, epochs: int, max_steps: int, shuffle: bool = True
    ) -> TrainingSampler:
        """Make the sampler of this rank, with the batch size and seed of the run."""
        training = ctx.config.training
        return cls(
            num_rows,
            batch_size=training.batch_size,
            accumulate=training.accumulate,
            epochs=epochs,
            max_steps=max_steps,
            seed=training.seed,
            rank=ctx.rank,
            world_size=ctx.world_size,
            shuffle=shuffle,
        )

    def __len__(self) -> int:
        return min(self.steps_per_epoch, self.planned_steps - self.epoch * self.steps_per_epoch)

    def __iter__(self) -> Iterator[list[MicroBatch]]:
        order = row_order(self.num_rows, self.seed, self.epoch) if self.shuffle else list(range(self.num_rows))
        for step in range(len(self)):
            rows = order[step * self.global_batch : (step + 1) * self.global_batch]
            yield split_global_batch(rows, self.batch_size, self.rank, self.world_size)


def row_order(num_rows: int, seed: int, epoch: int) -> list[int]:
    order = list(range(num_rows))
    random.Random(f"{seed} {epoch}").shuffle(order)
    return order


def split_global_batch(rows: list[int], batch_size: int, rank: int, world_size: int) -> list[MicroBatch]:
    """Return this rank's micro-batches. Every rank gets the same number of them, of the same sizes."""
    size = math.ceil(len(rows) / world_size)
    mine = rows[rank::world_size]
    weights = [1] * len(mine) + [0] * (size - len(mine))
    mine = mine + rows[:1] * (size - len(mine))
    scale = world_size / len(rows)
    return [
        MicroBatch(mine[first : first + batch_size], weights[first : first + batch_size], scale)
        for first in range(0, size, batch_size)
    ]


def evaluation_rows(num_rows: int, rank: int, world_size: int) -> range:
    """Return rows so that each is on exactly one rank. Ranks may differ by one row, so an evaluation must not
    communicate per batch."""
    return range(rank, num_rows, world_size)


def step_loader(
    make_batch: Callable[[MicroBatch], Batch], sampler: TrainingSampler, num_workers: int
) -> DataLoader[Any]:
    """Load steps in worker processes. Each item is one optimizer step: a list of micro-batches."""
    from torch.utils.data import DataLoader

    dataset, is_persistent = _StepDataset(make_batch), num_workers > 0
    return DataLoader(
        dataset, sampler=sampler, batch_size=None, num_workers=num_workers, persistent_workers=is_persistent
    )


@dataclass(frozen=True)
class _StepDataset:
    """Runs in the loader's worker processes."""

    make_batch: Callable[[MicroBatch], Batch]

    def __getitem__(self, step: list[MicroBatch]) -> list[Batch]:
        return [self.make_batch(micro) for micro in step]


def step_counts(micro_batches: Sequence[Batch]) -> dict[str, int]:
    """Return the arguments of `step.done` other than the loss."""
    return {name: sum(batch[name] for batch in micro_batches) for name in ("samples", "tokens", "padded_tokens")}
