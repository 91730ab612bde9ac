"""How much of a card's memory a program can really use. See README.md."""

from __future__ import annotations

from flagperf.errors import Unsupported
from flagperf.worker import Context
from flagperf_cases.buffers import host_memory_problem
from flagperf_cases.memory_capacity.chunks import Chunks
from flagperf_cases.turns import num_turns


def run(ctx: Context) -> None:
    _refuse_to_fill_the_host(ctx, ctx.config.memory_capacity.limit_bytes)
    with ctx.measured(planned_steps=2 * num_turns(ctx)):
        for devices in ctx.turns():
            _measure(ctx, devices)


def _refuse_to_fill_the_host(ctx: Context, limit_bytes: int) -> None:
    """Before memory of the host runs out, the kernel ends processes."""
    if not limit_bytes and not ctx.has_own_memory():
        raise Unsupported(
            "the devices of this vendor share the host's memory, which this case would fill until the kernel ends "
            "processes; set a bound: --set memory_capacity.limit_bytes=268435456"
        )
    if problem := host_memory_problem(ctx, limit_bytes):
        raise Unsupported(f"memory_capacity.limit_bytes={limit_bytes}: {problem}; set less")


def _measure(ctx: Context, devices: str) -> None:
    config = ctx.config.memory_capacity
    chunks = Chunks(ctx, config.limit_bytes, config.seed)
    chunks.fill()
    problem = _problem(ctx, chunks)
    labels = {"devices": devices, "until": "limit" if chunks.is_at_limit else "out_of_memory"}
    ctx.row("memory_capacity", labels, [chunks.num_bytes], "bytes", problem)
    total = ctx.memory_bytes()
    if total is None:
        ctx.row("share_of_total", labels, [], "share", "the device does not report the size of its memory")
    else:
        ctx.row("share_of_total", labels, [chunks.num_bytes / total], "share", problem)


def _problem(ctx: Context, chunks: Chunks) -> str:
    total, wrong = ctx.memory_bytes(), chunks.num_wrong_pages()
    if wrong:
        return f"{wrong} pages of 4 KiB do not hold what was written there"
    if total is not None and chunks.num_bytes > total:
        return f"{chunks.num_bytes} bytes were written, but the device reports {total} in all"
    return ""
