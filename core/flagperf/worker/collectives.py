"""The few collectives that the worker and the cases need, over whatever group the worker opened."""

from __future__ import annotations

from collections.abc import Sequence


def sum_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[float]:
    """In double precision on the host, in the order of the ranks: some cards have no float64, so that the numbers cross
    them as the 64 bits that they are."""
    if world_size == 1:
        return [float(value) for value in values]
    import torch

    mine = torch.tensor(list(values), dtype=torch.float64).view(torch.int64).to(device)
    of_all = [torch.empty_like(mine) for _ in range(world_size)]
    torch.distributed.all_gather(of_all, mine)
    return [float(value) for value in torch.stack(of_all).cpu().view(torch.float64).sum(0)]
