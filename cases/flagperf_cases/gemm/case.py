"""How fast a card multiplies matrices, by precision and shape. See README.md."""

from __future__ import annotations

from flagperf.worker import Context, Timed
from flagperf_cases.buffers import cache_label, host_memory_problem
from flagperf_cases.gemm.products import make_product
from flagperf_cases.gemm.proof import prove
from flagperf_cases.gemm.shapes import Shape, planned_shapes
from flagperf_cases.turns import num_turns


def run(ctx: Context) -> None:
    shapes = planned_shapes({"gemm": vars(ctx.config.gemm)})
    planned = [(kind, shape) for kind, of_kind in shapes.items() for shape in of_kind]
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned) * len(ctx.config.gemm.precisions)):
        for devices in ctx.turns():
            for precision in ctx.config.gemm.precisions:
                for kind, shape in planned:
                    _measure(ctx, precision, shape, {"class": kind, "devices": devices})


def _measure(ctx: Context, precision: str, shape: Shape, labels: dict[str, str]) -> None:
    def prepare() -> Timed:
        if problem := host_memory_problem(ctx, _operand_bytes(precision, shape) + _proof_bytes(shape)):
            raise MemoryError(problem)
        switches = ctx.use_precision("tf32" if precision == "tf32" else "fp32")
        product = make_product(precision, shape, ctx.device, ctx.config.gemm.seed)
        return Timed(
            call=product.call,
            check=lambda last: {**switches, **product.facts(), **prove(precision, product, last)},
            flops=shape.flops,
            limits={"flops": precision},
        )

    cache = cache_label(ctx, _operand_bytes(precision, shape))
    named = {"precision": precision, "shape": str(shape), "cache": cache}
    ctx.timed_row("gemm", {**named, **labels}, prepare)


def _operand_bytes(precision: str, shape: Shape) -> int:
    size = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "fp16_acc16": 2, "bf16": 2}.get(precision, 1)
    return size * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)


def _proof_bytes(shape: Shape) -> int:
    """The second operand in float64."""
    return 8 * shape.k * shape.n
