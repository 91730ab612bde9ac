"""Measure how fast a card moves data within its memory, by pattern and size. See README.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from flagperf.worker import Context, Timed, WrongOutput
from flagperf_cases.buffers import (
    PIECE,
    WINDOW_EXTRA,
    WINDOW_STARTS,
    are_equal,
    cache_label,
    host_memory_problem,
    in_turns,
    num_turns,
    windows,
)
from flagperf_cases.sizes import ELEMENT_BYTES, MIB, planned_sizes, read_size, read_sizes


def run(ctx: Context) -> None:
    wanted = ctx.config.memory_bandwidth
    least: int = -(-wanted.headline_caches * (ctx.cache_bytes() or 0) // MIB) * MIB  # so many caches, in whole MiB
    headline = max(read_size("memory_bandwidth.headline", wanted.headline), least)
    sizes = planned_sizes(headline, read_sizes("memory_bandwidth.sizes", wanted.sizes))
    planned = [(pattern, kind, size) for kind, size in sizes for pattern in wanted.patterns]
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned)):
        for devices in ctx.turns():
            for pattern, kind, size in planned:
                _measure(ctx, pattern, size, {"class": kind, "devices": devices})


def _measure(ctx: Context, name: str, size: int, labels: dict[str, str]) -> None:
    pattern = PATTERNS[name]

    def prepare() -> Timed:
        if problem := host_memory_problem(ctx, pattern.held * size):
            raise MemoryError(problem)
        torch.manual_seed(ctx.config.memory_bandwidth.seed)
        call, check = pattern.make(size // ELEMENT_BYTES, ctx.device)

        def facts(output: Any) -> dict[str, str]:
            check(output)
            return {"check": "every element of the last timed output"}

        return Timed(call=call, check=facts, bytes=pattern.moved * size, limits={"bytes": "memory_bandwidth"})

    named = {"pattern": name, "bytes": size, "cache": cache_label(ctx, pattern.held * size)}
    ctx.timed_row("memory_bandwidth", {**named, **labels}, prepare)


# --- patterns ---------------------------------------------------------------------------------------------------------

LARGEST = 127
"""Of the integers that are summed. In float32 sums of millions of them are exact in any order: partial sums wander like
the root of their number, and stay far below 2**24."""

SCALE = 3.0
ROUNDING = 2.0**-23
"""Of a product and a sum in float32, relative to the sizes of both."""


class Pattern(msgspec.Struct, frozen=True):
    make: Callable[[int, str], tuple[Callable[[], Any], Callable[[Any], None]]]
    """(elements of an array, device) -> what is timed, and the check of its output."""
    moved: int
    """Arrays that a call reads or writes."""
    held: int
    """Arrays in memory."""


def _copy(length: int, device: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    sources = windows(torch.randn(length + WINDOW_EXTRA, device=device), length)
    target = torch.empty(length, device=device)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        source = next(sources)
        return target.copy_(source), source

    def check(output: tuple[torch.Tensor, torch.Tensor]) -> None:
        if not are_equal(*output):
            raise WrongOutput("the copy differs from its source")

    return call, check


def _read(length: int, device: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    numbers = torch.empty(length + WINDOW_EXTRA, device=device).random_(-LARGEST, LARGEST + 1)
    sources = windows(numbers, length)
    total = torch.empty(1, device=device)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        source = next(sources)
        return torch.sum(source, dim=0, keepdim=True, out=total), source

    def check(output: tuple[torch.Tensor, torch.Tensor]) -> None:
        found, source = output
        expected = sum(int(piece.cpu().long().sum()) for piece in source.split(PIECE))
        if float(found.cpu()) != expected:
            raise WrongOutput(f"the sum is {float(found.cpu()):.0f}, not {expected}")

    return call, check


def _write(length: int, device: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    numbers = in_turns(torch.randn(len(WINDOW_STARTS)).tolist())
    target = torch.empty(length, device=device)

    def call() -> tuple[torch.Tensor, float]:
        number = next(numbers)
        return target.fill_(number), number

    def check(output: tuple[torch.Tensor, float]) -> None:
        filled, number = output
        if not all(bool((piece == number).all()) for piece in filled.split(PIECE)):
            raise WrongOutput("not every element was written")

    return call, check


def _triad(length: int, device: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    added = windows(torch.randn(length + WINDOW_EXTRA, device=device), length)
    scaled = torch.randn(length, device=device)
    target = torch.empty(length, device=device)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        addend = next(added)
        return torch.add(addend, scaled, alpha=SCALE, out=target), addend

    def check(output: tuple[torch.Tensor, torch.Tensor]) -> None:
        for pieces in zip(*(each.split(PIECE) for each in (*output, scaled)), strict=True):
            found, addend, factor = (piece.cpu().double() for piece in pieces)
            product = SCALE * factor
            allowed = ROUNDING * (addend.abs() + product.abs())
            if not ((found - (addend + product)).abs() <= allowed).all():
                raise WrongOutput(f"an element differs from b + {SCALE:g} c by more than its rounding")

    return call, check


PATTERNS = {
    "copy": Pattern(_copy, moved=2, held=2),
    "read": Pattern(_read, moved=1, held=1),
    "write": Pattern(_write, moved=1, held=1),
    "triad": Pattern(_triad, moved=3, held=3),
}
