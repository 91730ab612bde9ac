"""The few collectives that the worker and the cases need, over whatever group the worker opened."""

from __future__ import annotations

from collections.abc import Sequence


def sum_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[float]:
    if world_size == 1:
        return [float(value) for value in values]
    import torch

    total = torch.tensor(list(values), dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)
    return [float(value) for value in total.tolist()]
