"""Measures the operator calls that another run has recorded: `flagperf run operators --from RUN`."""

from __future__ import annotations

import gc
from typing import Any

from flagperf.api import OperatorCall, RecordedRanks, Recording
from flagperf.errors import Unsupported
from flagperf.worker import Context, Timed, WrongOutput
from flagperf_cases.buffers import host_memory_problem
from flagperf_cases.operators.recorded_calls import NOT_TIMED, describe, product_dtype, sort_out
from flagperf_cases.operators.recorded_inputs import held_bytes
from flagperf_cases.operators.recorded_work import prepare_work

ROW, NOT_TIMED_ROW = "recorded", "recorded, not timed"

PEAK_ROWS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "int8": "int8",
}

CACHES = 4
"""A call that moves as much as so many caches does not find its inputs there."""


def replay(ctx: Context, recording: Recording) -> None:
    """Every call of one step becomes a row, with exactly the shapes, strides, types and arguments that it had."""
    (part,) = recording.parts
    calls, others = sort_out(part)
    precision = _precision(ctx, recording)
    gc.freeze()  # memory is collected around every row, and what was imported by now is not looked through again
    with ctx.measured(planned_steps=len(calls)):
        for number, call in enumerate(calls):
            _measure(ctx, part, call, number, precision)
        for other in others:
            labels = {"operator": other.operator, "per_step": per_step(other.count, part)}
            ctx.row(NOT_TIMED_ROW, labels, [], "s", problem=NOT_TIMED[other.why])


def _precision(ctx: Context, recording: Recording) -> str:
    """How products of float32 are computed: as in the recorded run where this card can, and each row says how."""
    if recording.precision != "tf32":
        return "fp32"
    try:
        ctx.use_precision("tf32")
    except Unsupported:
        return "fp32"
    return "tf32"


def _measure(ctx: Context, part: RecordedRanks, call: OperatorCall, number: int, precision: str) -> None:
    def prepare() -> Timed:
        ctx.use_precision(precision)
        _check_memory(ctx, held_bytes(call, part))
        work = prepare_work(call, part, ctx.device, seed=number)

        def check(output: Any) -> dict[str, str]:
            try:
                return {**work.check(output), "cache": _cache(ctx, work.bytes), "float32": precision}
            except ValueError as error:
                raise WrongOutput(str(error)) from None

        return Timed(
            call=work.call,
            check=check,
            before=work.before,
            flops=work.flops,
            bytes=work.bytes,
            limits=_limits(call, part, work.flops, precision),
        )

    labels = {
        "operator": call.operator,
        "arguments": describe(call, part),
        "per_step": per_step(call.count, part),
        "call": number,
    }
    ctx.timed_row(ROW, labels, prepare)


def per_step(count: int, part: RecordedRanks) -> str:
    """Not a whole number where the steps differ."""
    return f"{count / part.steps:.6g}"


def _check_memory(ctx: Context, needed: int) -> None:
    """Before anything is allocated: a machine that runs out of memory may end the worker."""
    if problem := host_memory_problem(ctx, needed):
        raise MemoryError(problem)
    available = ctx.memory_bytes()
    if available is not None and needed > available:
        raise MemoryError(f"its arguments have {needed} bytes, and the device has {available}")


def _limits(call: OperatorCall, part: RecordedRanks, flops: int, precision: str) -> dict[str, str]:
    """Products are bounded by the card's peak in their type, and all by its memory."""
    row = PEAK_ROWS.get(product_dtype(call, part), "")
    if flops and row:
        return {"flops": precision if row == "fp32" else row, "bytes": "memory_bandwidth"}
    return {} if flops else {"bytes": "memory_bandwidth"}


def _cache(ctx: Context, moved_bytes: int) -> str:
    cache_bytes = ctx.cache_bytes()
    if cache_bytes is None:
        return "unknown"
    return "cold" if moved_bytes >= CACHES * cache_bytes else "hot"
