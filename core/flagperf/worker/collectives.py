"""Collectives that the worker and the cases need, on the worker's process group."""

from __future__ import annotations

from collections.abc import Sequence


def sum_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[float]:
    """Sums in float64 on the host, in rank order. Some cards have no float64, so the values are transferred as raw
    bits."""
    if world_size == 1:
        return [float(value) for value in values]
    import torch

    mine = torch.tensor(list(values), dtype=torch.float64).view(torch.int64).to(device)
    of_all = [torch.empty_like(mine) for _ in range(world_size)]
    torch.distributed.all_gather(of_all, mine)
    return [float(value) for value in torch.stack(of_all).cpu().view(torch.float64).sum(0)]
