"""Measure how fast devices exchange data in collectives, within a node and across nodes. See README.md.

In every collective a rank sends or receives `num_ranks` equal parts, so the size S is a multiple of them. Bytes over
the links follow the usual factors on S: 2 (n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and
all-to-all, 1 for broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import distributed

from flagperf.worker import Context, Timed
from flagperf_cases.buffers import WINDOW_STARTS, in_turns
from flagperf_cases.collectives.data import Message, planned_messages
from flagperf_cases.number_cycle import check_message, message, messages, nothing, number_cycle, shifted, summed

LIMITS = {"node": {"bus_bytes": "link_bandwidth"}, "nodes": {}}
"""By scope. What bounds a transfer across nodes is not the card."""


def run(ctx: Context) -> None:
    messages = planned_messages({"collectives": vars(ctx.config.collectives)})
    groups = make_groups(ctx)
    with ctx.measured(planned_steps=len(messages) * len(groups)):
        for scope, group in groups.items():
            for message in messages:
                measure(ctx, scope, group, message)


def make_groups(ctx: Context) -> dict[str, Group]:
    """Return by scope the group of this rank: its node, where that has several devices, and all nodes, where there are
    several."""
    nodes = ctx.ranks_by_node()
    if len(nodes) == 1:
        return {"node": Group(None, tuple(nodes[0]), ctx.rank)}
    groups = {}
    if len(nodes[0]) > 1:
        handles = [distributed.new_group(ranks) for ranks in nodes]  # every rank makes all of them
        mine = next(index for index, ranks in enumerate(nodes) if ctx.rank in ranks)
        groups["node"] = Group(handles[mine], tuple(nodes[mine]), nodes[mine].index(ctx.rank))
    return {**groups, "nodes": Group(None, tuple(range(ctx.world_size)), ctx.rank)}


def measure(ctx: Context, scope: str, group: Group, message: Message) -> None:
    labels = {
        "operation": message.operation,
        "precision": message.precision,
        "bytes": message.size,
        "class": message.kind,
        "scope": scope,
        "ranks": group.size,
    }
    ctx.timed_row("collective", labels, lambda: prepare(ctx, scope, group, message), together=True)


def prepare(ctx: Context, scope: str, group: Group, message: Message) -> Timed:
    seed = ctx.config.collectives.seed
    made = make_exchange(message.operation, message.precision, message.size, group, ctx.device, seed)
    return msgspec.structs.replace(made, limits=LIMITS[scope])


# --- exchanges --------------------------------------------------------------------------------------------------------

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

REFILLED_BYTES = 64 << 20
MOST_BUFFERS = 1000
"""An all-reduce overwrites what it adds up. So there are several buffers, which are refilled between two samples."""

SENDER_SHIFT = 4001
"""Between the ranks of an all-to-all, whose parts also have shifts of their own."""

Received = tuple[torch.Tensor, int]
"""A buffer of the last call, and the shift of what the ranks sent then: they count their calls, and make equally
many."""


class Group(msgspec.Struct, frozen=True):
    """Names the ranks that take part."""

    handle: Any
    """What torch.distributed takes as `group`."""
    ranks: tuple[int, ...]
    """Of the job."""
    index: int
    """Of this rank among them."""

    @property
    def size(self) -> int:
        return len(self.ranks)


class Payload(msgspec.Struct, frozen=True):
    group: Group
    dtype: torch.dtype
    part: int
    """Elements of each of the equal parts."""
    device: str
    cycle: torch.Tensor

    @property
    def length(self) -> int:
        return self.part * self.group.size

    @property
    def num_bytes(self) -> int:
        return self.length * int(self.dtype.itemsize)

    def send(self, shift: int, length: int) -> list[torch.Tensor]:
        """Return one message for each of WINDOW_STARTS."""
        return messages(shifted(self.cycle, shift), length, self.dtype, self.device)

    def receive(self, length: int) -> torch.Tensor:
        return nothing(length, self.dtype, self.device)


def make_exchange(operation: str, precision: str, size: int, group: Group, device: str, seed: int) -> Timed:
    """Return the call of this rank, and the check of what it receives."""
    dtype = DTYPES[precision]
    part = max(1, size // dtype.itemsize // group.size)
    payload = Payload(group, dtype, part, device, number_cycle(seed, dtype, group.size))
    index, others = group.index, range(group.size)
    match operation:
        case "all_reduce":
            return _all_reduce(payload)
        case "broadcast":
            return _broadcast(payload)
        case "all_gather":
            exchange = _function("all_gather_single", "all_gather_into_tensor")
            sent, received = payload.send(index, part), payload.receive(payload.length)
            expected = [shifted(payload.cycle, other) for other in others]
        case "reduce_scatter":
            exchange = _function("reduce_scatter_single", "reduce_scatter_tensor")
            sent, received = payload.send(index, payload.length), payload.receive(part)
            expected = [shifted(summed(payload.cycle, group.size), index * part)]
        case _:  # all_to_all
            exchange = distributed.all_to_all_single
            sent, received = payload.send(index * SENDER_SHIFT, payload.length), payload.receive(payload.length)
            expected = [shifted(payload.cycle, other * SENDER_SHIFT + index * part) for other in others]
    turns = in_turns(list(zip(sent, WINDOW_STARTS, strict=True)))

    def call() -> Received:
        """Send other numbers than the call before."""
        buffer, shift = next(turns)
        exchange(received, buffer, group=group.handle)
        return received, shift

    return _timed(payload, call, expected, group.size - 1)


def _timed(payload: Payload, call: Callable[[], Received], parts: list[torch.Tensor], over_links: int) -> Timed:
    """Return what is timed, with its check. `over_links` is how many of the equal parts a rank has to move in one
    direction."""

    def check(last: Received) -> dict[str, str]:
        received, shift = last
        return check_message(received, [shifted(part, shift) for part in parts])

    return Timed(
        call=call,
        check=check,
        bytes=payload.num_bytes,
        bus_bytes=over_links * payload.part * payload.dtype.itemsize,
    )


def _all_reduce(payload: Payload) -> Timed:
    """Add up what is in place of the sum before every call, so that it need not change."""
    mine = shifted(payload.cycle, payload.group.index)
    sent = message(mine, payload.length, payload.dtype, payload.device)
    refilled, zero = _Refilled(sent), torch.zeros(1, dtype=payload.dtype, device=payload.device)

    def before() -> None:
        """Refill, and let no rank begin while another still does: its own sample would have that time."""
        refilled.refill()
        distributed.all_reduce(zero, group=payload.group.handle)

    def call() -> Received:
        buffer = refilled.next()
        distributed.all_reduce(buffer, group=payload.group.handle)
        return buffer, 0

    timed = _timed(payload, call, [summed(payload.cycle, payload.group.size)], 2 * (payload.group.size - 1))
    return msgspec.structs.replace(timed, before=before, calls_per_before=len(refilled))


class _Refilled:
    """Hands out buffers one after the other."""

    def __init__(self, content: torch.Tensor) -> None:
        self._content = content
        count = max(1, min(MOST_BUFFERS, REFILLED_BYTES // content.nbytes))
        self._buffers = content.repeat(count, 1)
        self._each = list(self._buffers)
        self._num_used = 0

    def __len__(self) -> int:
        return len(self._each)

    def next(self) -> torch.Tensor:
        buffer = self._each[self._num_used % len(self._each)]
        self._num_used += 1
        return buffer

    def refill(self) -> None:
        self._buffers[: self._num_used].copy_(self._content)
        self._num_used = 0


def _broadcast(payload: Payload) -> Timed:
    """Send from the first rank of the group."""
    if payload.group.index == 0:
        buffers = payload.send(0, payload.length)
    else:
        buffers = [payload.receive(payload.length)] * len(WINDOW_STARTS)
    turns = in_turns(list(zip(buffers, WINDOW_STARTS, strict=True)))

    def call() -> Received:
        buffer, shift = next(turns)
        distributed.broadcast(buffer, payload.group.ranks[0], group=payload.group.handle)
        return buffer, shift

    return _timed(payload, call, [payload.cycle], payload.group.size)


def _function(name: str, older_name: str) -> Callable[..., Any]:
    """Find a function of torch. It has renamed some, and warns with every call by the older name."""
    found: Callable[..., Any] = getattr(distributed, name, None) or getattr(distributed, older_name)
    return found
