"""Measure how fast two devices send data to each other, for every pair. See README.md."""

from __future__ import annotations

import torch
from torch import distributed

from flagperf.worker import Context, Timed
from flagperf_cases.buffers import WINDOW_STARTS, in_turns
from flagperf_cases.number_cycle import check_message, messages, nothing, number_cycle, shifted
from flagperf_cases.peer_to_peer.data import Pair, Transfer, planned_transfers

DTYPE = torch.float32
Received = tuple[torch.Tensor, int]
"""The receiver's buffer, and the shift of what was sent last: both ranks count their calls, and make equally many."""

LIMITS = {"node": {"bus_bytes": "link_bandwidth"}, "nodes": {}}
"""By scope. What bounds a transfer between nodes is not the card."""


def run(ctx: Context) -> None:
    transfers = planned_transfers({"peer_to_peer": vars(ctx.config.peer_to_peer)}, ctx.ranks_by_node())
    with ctx.measured(planned_steps=sum(ctx.rank in transfer.members for transfer in transfers)):
        for transfer in transfers:
            if ctx.rank in transfer.members:
                measure(ctx, transfer)
            ctx.meet()


def measure(ctx: Context, transfer: Transfer) -> None:
    pair = next(pair for pair in transfer.pairs if ctx.rank in pair)
    make = _both_ways if transfer.direction == "both" else _one_way
    labels = {
        "from": pair[0],
        "to": pair[1],
        "direction": transfer.direction,
        "bytes": transfer.size,
        "class": transfer.kind,
        "scope": transfer.scope,
        "pairs": transfer.at_once,
    }
    ctx.timed_row("transfer", labels, lambda: make(ctx, transfer, pair), together=transfer.members)


def _one_way(ctx: Context, transfer: Transfer, pair: Pair) -> Timed:
    """Send from the first to the second. Both record their own time, and the second looks at what has arrived."""
    length = transfer.size // DTYPE.itemsize
    cycle = _cycle(ctx, pair)
    is_sender = ctx.rank == pair[0]
    if is_sender:
        buffers = messages(cycle, length, DTYPE, ctx.device)
    else:
        buffers = [nothing(length, DTYPE, ctx.device)] * len(WINDOW_STARTS)
    turns = in_turns(list(zip(buffers, WINDOW_STARTS, strict=True)))

    def call() -> Received:
        buffer, shift = next(turns)
        if is_sender:
            distributed.send(buffer, pair[1])
        else:
            distributed.recv(buffer, pair[0])
        return buffer, shift

    def check(last: Received) -> dict[str, str]:
        if is_sender:
            return {"role": "sends"}
        buffer, shift = last
        return {"role": "receives", **check_message(buffer, [shifted(cycle, shift)])}

    size = buffers[0].nbytes
    return Timed(call=call, check=check, bytes=size, bus_bytes=size, limits=LIMITS[transfer.scope])


def _both_ways(ctx: Context, transfer: Transfer, pair: Pair) -> Timed:
    """Send and receive at the same time."""
    length = transfer.size // DTYPE.itemsize
    other = pair[1] if ctx.rank == pair[0] else pair[0]
    sent = messages(_cycle(ctx, (ctx.rank, other)), length, DTYPE, ctx.device)
    received = nothing(length, DTYPE, ctx.device)
    receive = distributed.P2POp(distributed.irecv, received, other)
    operations = [[distributed.P2POp(distributed.isend, each, other), receive] for each in sent]
    turns = in_turns(list(zip(operations, WINDOW_STARTS, strict=True)))

    def call() -> Received:
        both, shift = next(turns)
        for work in distributed.batch_isend_irecv(both):
            work.wait()
        return received, shift

    def check(last: Received) -> dict[str, str]:
        buffer, shift = last
        return {"role": "both", **check_message(buffer, [shifted(_cycle(ctx, (other, ctx.rank)), shift)])}

    bytes_each = received.nbytes
    return Timed(call=call, check=check, bytes=2 * bytes_each, bus_bytes=bytes_each, limits=LIMITS[transfer.scope])


def _cycle(ctx: Context, pair: Pair) -> torch.Tensor:
    """Return the numbers of an ordered pair, each of which has a shift of its own."""
    cycle = number_cycle(ctx.config.peer_to_peer.seed, DTYPE, num_ranks=1)
    return shifted(cycle, pair[0] * ctx.world_size + pair[1])
