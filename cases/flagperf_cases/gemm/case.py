"""Measure how fast a card multiplies matrices, by precision and shape. See README.md.

In this order: a row, the operands of a product in each precision, the proof on the timed output that it was computed in
the precision of its label.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from flagperf.worker import Context, Timed, WrongOutput
from flagperf_cases.buffers import WINDOW_EXTRA, all_windows, cache_label, host_memory_problem, in_turns, num_turns
from flagperf_cases.gemm.data import Shape, planned_shapes


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
        second_in_fp64 = 8 * shape.k * shape.n  # for the proof
        if problem := host_memory_problem(ctx, _operand_bytes(precision, shape) + second_in_fp64):
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


# --- products ---------------------------------------------------------------------------------------------------------

FP8_LARGEST = 448.0
"""Of float8_e4m3fn."""


class Multiplied(NamedTuple):
    """Holds what a call gives: its output, and the first operand that it had."""

    output: torch.Tensor
    a: torch.Tensor


class Product(msgspec.Struct, frozen=True):
    """Operands are in a form that converts to float64: of scaled operands, the stored values."""

    call: Callable[[], Multiplied]
    numbers: torch.Tensor
    """Calls take turns with first operands that are windows of these."""
    b: torch.Tensor
    scale: float = 1.0
    """The output is this times the product of the operands."""
    facts: Callable[[], dict[str, str]] = lambda: {"layout": "NN"}
    """Of the call, after it was made. `layout` NT: the second operand is stored by columns."""


def make_product(precision: str, shape: Shape, device: str, seed: int) -> Product:
    """Draw the operands. float64 is drawn as such: numbers of 24 bits would not tell a card that rounds to float32."""
    torch.manual_seed(seed)
    num_numbers = shape.m * shape.k + WINDOW_EXTRA  # of all windows for the first operand
    if precision == "fp8":  # scaled by tensor, so that the largest value is the format's
        numbers, a_scale = _quantised(torch.randn(num_numbers, device=device))
        b, b_scale = _quantised(torch.randn(shape.n, shape.k, device=device))
        one = torch.ones((), device=device)
        multiply = _ScaledProduct(b.t(), one * a_scale, one * b_scale, shape)
        call = multiply_in_turns(multiply, numbers, shape)
        return Product(call, numbers, b.t(), a_scale * b_scale, facts=multiply.facts)
    if precision == "int8":
        numbers = torch.randint(-127, 128, (num_numbers,), device=device, dtype=torch.int8)
        b = torch.randint(-127, 128, (shape.n, shape.k), device=device, dtype=torch.int8)
        out = torch.empty(shape.m, shape.n, dtype=torch.int32, device=device)
        call = multiply_in_turns(lambda a: torch._int_mm(a, b.t(), out=out), numbers, shape)
        return Product(call, numbers, b.t(), facts=lambda: {"layout": "NT"})
    dtype = DTYPES[precision]
    drawn = torch.float64 if precision == "fp64" else torch.float32
    numbers = torch.randn(num_numbers, dtype=drawn, device=device).to(dtype)
    b = torch.randn(shape.k, shape.n, dtype=drawn, device=device).to(dtype)
    out = torch.empty(shape.m, shape.n, dtype=dtype, device=device)
    return Product(multiply_in_turns(lambda a: torch.mm(a, b, out=out), numbers, shape), numbers, b)


def multiply_in_turns(
    multiply: Callable[[torch.Tensor], torch.Tensor], numbers: torch.Tensor, shape: Shape
) -> Callable[[], Multiplied]:
    operands = in_turns([window.view(shape.m, shape.k) for window in all_windows(numbers, shape.m * shape.k)])

    def call() -> Multiplied:
        a = next(operands)
        return Multiplied(multiply(a), a)

    return call


DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "fp16_acc16": torch.float16,
    "bf16": torch.bfloat16,
}


class _ScaledProduct:
    """Multiplies into an output that exists, where this torch can do that on this device: the first call finds out.
    Otherwise every call allocates one."""

    def __init__(self, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, shape: Shape) -> None:
        self._b = b
        self._settings = {
            "scale_a": a_scale, "scale_b": b_scale, "out_dtype": torch.bfloat16, "use_fast_accum": False,
        }  # fmt: skip
        self._out = {"out": torch.empty(shape.m, shape.n, dtype=torch.bfloat16, device=b.device)}
        self._is_tried = False

    def __call__(self, a: torch.Tensor) -> torch.Tensor:
        if self._is_tried:
            return self._multiply(a)
        self._is_tried = True
        try:
            return self._multiply(a)
        except (RuntimeError, TypeError):  # what else may be wrong, the call without such an output raises as well
            self._out = {}
        return self._multiply(a)

    def _multiply(self, a: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, self._b, **self._settings, **self._out)

    def facts(self) -> dict[str, str]:
        output = "exists before the call" if self._out else "allocated by the call"
        return {"layout": "NT", "scaling": "per tensor", "fast_accumulation": "off", "output": output}


def _quantised(values: torch.Tensor) -> tuple[torch.Tensor, float]:
    scale = float(values.abs().max()) / FP8_LARGEST
    return (values / scale).to(torch.float8_e4m3fn), scale


# --- proof ------------------------------------------------------------------------------------------------------------

NUM_ROWS = 64

ACCEPTED = {
    "fp32": (0.0, 5e-5),
    "tf32": (1e-4, 1.5e-3),
    "fp16": (0.0, 5e-4),
    "bf16": (0.0, 3e-3),
    "fp8": (0.0, 1e-2),
}
"""Precision -> lowest and highest NRMSE. It does not depend on the number of terms of a sum."""

ACC16_LOW, ACC16_ROOT = 5e-4, 2e-4
"""Of sums that are kept in fp16: the lowest NRMSE, and the highest over the root of the number of terms. One addition
after the other has 1.5e-4, in blocks of 16 it is 0.4e-4."""

PROBES = {"fp32": (1 + 2.0**-12, "exact"), "tf32": (1 + 2.0**-12, "rounded"), "fp16_acc16": (1 + 2.0**-10, "exact")}
"""Precision -> the number, and what becomes of it."""

MISTAKEN = {"fp32": ("tf32", "bf16"), "tf32": ("fp32", "bf16"), "fp16": ("fp16_acc16",)}
"""Precision -> what such operands are multiplied in instead, the likeliest first."""

FP64_ERROR = 1e-13


def prove(precision: str, product: Product, last: Multiplied) -> dict[str, str]:
    """Return the facts of the proof. Raise WrongOutput."""
    if not bool(torch.isfinite(last.output.float()).all()):
        raise WrongOutput("the output has values that are not finite")
    if precision == "fp64":
        return _nearly_exact(product, last)
    rows = _chosen_rows(last)
    got = _double(last.output.cpu()[rows])
    wanted = (_double(last.a.cpu()[rows]) @ _double(product.b.cpu())) * product.scale
    if precision == "int8":
        if not torch.equal(got, wanted):
            raise WrongOutput(f"{int((got != wanted).sum())} of {got.numel()} integers are wrong")
        return {"check": f"{got.numel()} elements exact"}
    error = float((got - wanted).square().mean().sqrt() / wanted.square().mean().sqrt())
    num_terms = last.a.shape[1]
    low, high = _accepted(precision, num_terms)
    facts = {"nrmse": f"{error:.3g}", "accepted": f"{low:g} to {high:.3g}"}
    is_right = low <= error <= high
    if precision in PROBES:
        number, expected = PROBES[precision]
        facts["probe"] = _probe(product, number)
        is_right = is_right and facts["probe"] == expected
    if not is_right:
        shown = ", ".join(f"{name} {value}" for name, value in facts.items())
        mistaken = [(name, *_accepted(name, num_terms)) for name in MISTAKEN.get(precision, ())]
        likely = [f"; the error is that of {name}" for name, low, high in mistaken if low <= error <= high][:1]
        raise WrongOutput(f"it was not computed in {precision} ({shown}){''.join(likely)}")
    return facts


def _accepted(precision: str, num_terms: int) -> tuple[float, float]:
    if precision == "fp16_acc16":
        return ACC16_LOW, ACC16_ROOT * math.sqrt(num_terms)
    return ACCEPTED[precision]


def _chosen_rows(last: Multiplied) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randperm(last.a.shape[0], generator=generator)[:NUM_ROWS]


def _double(values: torch.Tensor) -> torch.Tensor:
    """Return float64. Some formats convert only through float32, which holds them exactly."""
    return (values.float() if values.element_size() == 1 else values).double()


def _nearly_exact(product: Product, last: Multiplied) -> dict[str, str]:
    """Compare with sums that round once: the halves of float64 operands have exact products."""
    rows = _chosen_rows(last)
    columns = torch.randperm(product.b.shape[1], generator=torch.Generator().manual_seed(2))[: len(rows)]
    a, b, got = last.a.cpu(), product.b.cpu(), last.output.cpu()
    worst, scale = 0.0, 0.0
    for row, column in zip(rows.tolist(), columns.tolist(), strict=False):
        (x_high, x_low), (y_high, y_low) = _halves(a[row]), _halves(b[:, column])
        wanted = math.fsum(torch.cat([x_high * y_high, x_high * y_low, x_low * y_high, x_low * y_low]).tolist())
        worst, scale = max(worst, abs(float(got[row, column]) - wanted)), max(scale, abs(wanted))
    error = worst / scale
    facts = {"error": f"{error:.3g}", "accepted": f"0 to {FP64_ERROR:g}"}
    if error > FP64_ERROR:
        raise WrongOutput(f"it was not computed in fp64 (error {error:.3g}, accepted up to {FP64_ERROR:g})")
    return facts


def _halves(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Split numbers into 26 leading bits, and the rest."""
    shifted = values * (2.0**27 + 1)
    high = shifted - (shifted - values)
    return high, values - high


def _probe(product: Product, number: float) -> str:
    """Multiply the number by the identity. Overwrites the operands."""
    product.numbers.fill_(number)
    product.b.zero_()
    product.b.diagonal().fill_(1.0)
    size = min(product.b.shape)
    returned = product.call().output[:, :size].cpu()
    return "exact" if bool((returned == number).all()) else "rounded"
