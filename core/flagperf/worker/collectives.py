"""Collectives that the worker and the cases need, on the worker's process group."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence


def sum_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[float]:
    """Sums in float64 on the host, in rank order."""
    gathered = gather_over_ranks(values, world_size, device)
    return [functools.reduce(operator.add, of_one) for of_one in zip(*gathered, strict=True)]


def max_over_ranks(value: float, world_size: int, device: str) -> float:
    return max(of_rank[0] for of_rank in gather_over_ranks([value], world_size, device))


def gather_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[list[float]]:
    """What every rank gave, in the order of the ranks. Some cards have no float64, so the values are transferred as
    raw bits."""
    if world_size == 1:
        return [[float(value) for value in values]]
    import torch

    mine = torch.tensor(list(values), dtype=torch.float64).view(torch.int64).to(device)
    of_all = [torch.empty_like(mine) for _ in range(world_size)]
    torch.distributed.all_gather(of_all, mine)
    return [[float(value) for value in row] for row in torch.stack(of_all).cpu().view(torch.float64)]
