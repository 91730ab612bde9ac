"""How the devices of a job take turns, so that each is measured alone and all are measured together."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.worker.collectives import max_over_ranks
from flagperf.worker.together import Ranks


def turns(local_rank: int, ranks: Ranks) -> Iterator[str]:
    """Alone means alone on its node: nodes share nothing that these rows measure. All ranks wait for each other
    between the turns."""
    if ranks.world_size == 1:
        yield "single"
        return
    last = int(max_over_ranks(local_rank, ranks.world_size, ranks.device))
    for turn in range(last + 1):
        ranks.meet()
        if turn == local_rank:
            yield "single"
    ranks.meet()
    yield "all"
    ranks.meet()
