"""Single operators: eager, compiled, and by libraries that replace them. See README.md."""

from __future__ import annotations

import gc
import os
from typing import Any

from flagperf.worker import Context, Timed
from flagperf_cases.buffers import host_memory_problem
from flagperf_cases.operators.groups import bind_torch
from flagperf_cases.operators.implementations import Implementation, make_implementation
from flagperf_cases.operators.measured import Measured, Operands
from flagperf_cases.operators.replay import replay
from flagperf_cases.operators.rows import Row, rows
from flagperf_cases.turns import num_turns

CACHES = 2
"""A buffer of so many last-level caches is written between calls that shall find nothing in the cache."""
DEFAULT_FLUSH_BYTES = 1 << 29
"""Where nobody knows the cache: more than any card had."""


def run(ctx: Context) -> None:
    recording = ctx.recording()
    if recording is not None:
        replay(ctx, recording)
        return
    bind_torch()
    values = vars(ctx.config.operators)
    planned = list(rows(values))
    # Memory is collected around every row; what was imported by now is not looked through again, which takes 0.1 s.
    gc.freeze()
    implementations = [make_implementation(name, ctx) for name in values["libraries"]]
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned) * len(implementations)):
        for devices in ctx.turns():
            for row in planned:
                measure(ctx, row, implementations, devices)


def measure(ctx: Context, row: Row, implementations: list[Implementation], devices: str) -> None:
    """All implementations of one row, in turns, with the same operands."""
    operands = Operands(row, ctx.device)

    def prepare(implementation: Implementation) -> Timed:
        ctx.use_precision("fp32")
        _check_memory(ctx, row)
        measured = Measured(row, operands, implementation)
        flops, num_bytes = row.operator.work(row.sizes, row.dtype, row.direction)
        return Timed(
            call=measured.call(),
            check=measured.check,
            flops=flops,
            bytes=num_bytes,
            limits=_limits(row),
            before=_before(ctx, row, measured),
            within=measured.within,
        )

    def alternative(implementation: Implementation) -> tuple[dict[str, Any], Any]:
        return {**row.labels, "library": implementation.name, "devices": devices}, lambda: prepare(implementation)

    ctx.timed_rows("operators", [alternative(implementation) for implementation in implementations])


def _limits(row: Row) -> dict[str, str]:
    """The roofline of what is limited by arithmetic in some shapes; all else moves data."""
    limits = {"bytes": "memory_bandwidth"}
    return {"flops": row.dtype, **limits} if row.operator.flops else limits


def _check_memory(ctx: Context, row: Row) -> None:
    """Before anything is allocated: a machine that runs out of memory may end the worker."""
    of_device, of_host = ctx.memory_bytes(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    needed = row.memory_bytes + row.check_bytes
    if problem := host_memory_problem(ctx, needed):
        raise MemoryError(problem)
    if of_device is not None and row.memory_bytes > of_device:
        raise MemoryError(f"it needs {row.memory_bytes} bytes, and the device has {of_device}")
    if needed > of_host:
        raise MemoryError(f"with its check it needs {needed} bytes, and the host has {of_host}")


def _before(ctx: Context, row: Row, measured: Measured) -> Any:
    """What is done before every call: operands as they were, nothing of them in the cache."""
    if row.cache != "cold":
        return measured.restore if row.operator.mutates else None
    flush = _flush(ctx)

    def before() -> None:
        if row.operator.mutates:
            measured.restore()
        flush()

    return before


def _flush(ctx: Context) -> Any:
    import torch

    size = CACHES * (ctx.cache_bytes() or DEFAULT_FLUSH_BYTES // CACHES)
    buffer = torch.empty(size, dtype=torch.int8, device=ctx.device)
    return lambda: buffer.add_(1)
