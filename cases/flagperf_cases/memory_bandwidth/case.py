"""How fast a card moves data within its memory, by pattern and size. See README.md."""

from __future__ import annotations

from typing import Any

import torch

from flagperf.worker import Context, Timed
from flagperf_cases.buffers import cache_label, host_memory_problem
from flagperf_cases.memory_bandwidth.patterns import PATTERNS
from flagperf_cases.sizes import ELEMENT_BYTES, MIB, planned_sizes, read_size, read_sizes
from flagperf_cases.turns import num_turns


def run(ctx: Context) -> None:
    wanted = ctx.config.memory_bandwidth
    planned = [
        (pattern, kind, size)
        for kind, size in planned_sizes(_headline_bytes(ctx), read_sizes("memory_bandwidth.sizes", wanted.sizes))
        for pattern in wanted.patterns
    ]
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned)):
        for devices in ctx.turns():
            for pattern, kind, size in planned:
                _measure(ctx, pattern, size, {"class": kind, "devices": devices})


def _headline_bytes(ctx: Context) -> int:
    """At least so many caches, in whole MiB."""
    wanted = ctx.config.memory_bandwidth
    least: int = -(-wanted.headline_caches * (ctx.cache_bytes() or 0) // MIB) * MIB
    return max(read_size("memory_bandwidth.headline", wanted.headline), least)


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
