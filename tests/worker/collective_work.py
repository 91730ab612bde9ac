"""What ranks of test_collectives do; found by its name in their processes."""

from __future__ import annotations

import time

import torch

from flagperf.worker import rank_sync
from flagperf.worker.rank_sync import Ranks
from flagperf.worker.row_timing import turns


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
    return rank_sync.sum_over_ranks([number * factor for number in mine], 2, "cpu"), crossed


def spans_of_turns(seconds: float) -> list[tuple[str, float, float]]:
    """When this rank's turns began and ended. All at once can only be ended by all."""
    rank, spans = torch.distributed.get_rank(), []
    ranks = Ranks(rank, 3, "cpu")
    for turn in turns(rank, ranks):
        began = time.monotonic()
        if turn == "all":
            ranks.meet()
        else:
            time.sleep(seconds)
        spans.append((turn, began, time.monotonic()))
    return spans


def agreed(members: list[int]) -> list[float]:
    """What some ranks agree on, twice; the others take no part."""
    rank = torch.distributed.get_rank()
    ranks = Ranks(rank, 3, "cpu")
    if rank not in members:
        return []
    partners = ranks.some_together(members)
    return [partners.agree(rank * 1.5), partners.agree(-rank)]
