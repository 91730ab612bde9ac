"""Make buffers for cases that time how fast bytes move: which of them fit, in which cache they are, and how a call is
given other bytes than the one before it; and count the turns that a device takes part in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

from flagperf.worker import Context
from flagperf_cases.sizes import GIB

CACHES = 4
"""Buffers of so many caches are not in the cache."""

Input = TypeVar("Input")

WINDOW_STARTS = tuple(range(0, 8 * 1024, 1024))
"""Elements before each window of a buffer. The step keeps windows aligned as the buffer is. There are seven after the
first, and round numbers of calls are no multiples of seven."""

WINDOW_EXTRA = WINDOW_STARTS[-1]
"""Elements that a buffer has beyond those of one window."""

PIECE = 1 << 24
"""Elements that are compared at a time: a comparison needs memory of its own."""


def cache_label(ctx: Context, num_bytes: int) -> str:
    """Say whether buffers of this size in all can be in the device's cache when a call begins."""
    cache_bytes = ctx.cache_bytes()
    if cache_bytes is None:
        return "unknown"
    return "cold" if num_bytes >= CACHES * cache_bytes else "hot"


def host_memory_problem(ctx: Context, num_bytes: int) -> str:
    """Say why a rank must not take so much of a memory that it shares with the host, or "". There no allocation fails:
    the kernel ends a process instead."""
    total = ctx.memory_bytes()
    if ctx.has_own_memory() or total is None or 2 * num_bytes * ctx.world_size <= total:
        return ""
    needed = f"{num_bytes / GIB:.3g} GiB for each of {ctx.world_size} rank(s)"
    return f"{needed} is more than half of the host's {total / GIB:.3g} GiB, which the devices share"


def in_turns(inputs: Sequence[Input]) -> Iterator[Input]:
    """Yield one for each call: the first once, then the others again and again. The output of the first call is so
    never right for a later one, and one that any call has left behind is wrong for the next ones."""
    return itertools.chain(inputs[:1], itertools.cycle(inputs[1:]))


def all_windows(buffer: torch.Tensor, length: int) -> list[torch.Tensor]:
    """Return views of one buffer of `length + WINDOW_EXTRA` elements, which need hardly more memory than one input."""
    return [buffer[start : start + length] for start in WINDOW_STARTS]


def windows(buffer: torch.Tensor, length: int) -> Iterator[torch.Tensor]:
    return in_turns(all_windows(buffer, length))


def are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    pairs = zip(one.split(PIECE), other.split(PIECE), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def num_turns(ctx: Context) -> int:
    """Count the turns of `Context.turns`: alone, and with all others where there are others."""
    return 1 if ctx.world_size == 1 else 2
