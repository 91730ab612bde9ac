"""How fast data moves between host and device, each way and both at once. See README.md."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from flagperf.worker import Context, Timed
from flagperf_cases.buffers import host_memory_problem
from flagperf_cases.host_to_device.transfers import check_arrival, make_transfer
from flagperf_cases.sizes import planned_sizes, read_size, read_sizes
from flagperf_cases.turns import num_turns

LIMITS = {"h2d": {"bytes": "host_link"}, "d2h": {"bytes": "host_link"}, "both": {}}
"""By direction. What is rated is one direction, and not twice of it in both."""


def run(ctx: Context) -> None:
    wanted = ctx.config.host_to_device
    headline = read_size("host_to_device.headline", wanted.headline)
    sizes = planned_sizes(headline, read_sizes("host_to_device.sizes", wanted.sizes))
    planned = list(itertools.product(wanted.memories, wanted.directions, sizes))
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned)):
        for devices in ctx.turns():
            for memory, direction, (kind, size) in planned:
                _measure(ctx, direction, memory, size, {"class": kind, "devices": devices})


def _measure(ctx: Context, direction: str, memory: str, size: int, labels: dict[str, str]) -> None:
    directions = 2 if direction == "both" else 1

    def prepare() -> Timed:
        if problem := host_memory_problem(ctx, 2 * directions * size):
            raise MemoryError(problem)
        torch.manual_seed(ctx.config.host_to_device.seed)
        call = make_transfer(ctx, direction, memory, size)
        return Timed(call=call, check=_facts, bytes=directions * size, limits=LIMITS[direction])

    path = "link" if ctx.has_own_memory() else "same memory"
    named = {"direction": direction, "memory": memory, "bytes": size, "path": path}
    ctx.timed_row("host_to_device", {**named, **labels}, prepare)


def _facts(output: Any) -> dict[str, str]:
    check_arrival(output)
    return {"check": "every element of the last timed output"}
