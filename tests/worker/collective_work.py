"""What ranks of test_collectives do; found by its name in their processes."""

from __future__ import annotations

import torch

from flagperf.worker import collectives


def sums(factor: float) -> tuple[list[float], list[torch.dtype]]:
    """Of numbers that rank 0 and rank 1 have, and the types of the tensors that crossed the card."""
    crossed: list[torch.dtype] = []
    gather = torch.distributed.all_gather

    def noted(tensors, tensor):
        crossed.append(tensor.dtype)
        return gather(tensors, tensor)

    torch.distributed.all_gather = noted
    rank = torch.distributed.get_rank()
    mine = ([2**53 - 2, 0.1, -1e300], [1, 0.2, 1e300])[rank]
    return collectives.sum_over_ranks([number * factor for number in mine], 2, "cpu"), crossed
