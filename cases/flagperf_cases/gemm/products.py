"""The operands of a product in each precision, the call that is timed, and what its output is compared with."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch

from flagperf_cases.gemm.shapes import Shape

FP8_LARGEST = 448.0
"""Of float8_e4m3fn."""


class Product(msgspec.Struct, frozen=True):
    """`a` and `b` are what is multiplied, in a form that converts to float64: of scaled operands, the stored values."""

    call: Callable[[], torch.Tensor]
    a: torch.Tensor
    b: torch.Tensor
    scale: float = 1.0
    """The output is this times the product of `a` and `b`."""
    layout: str = "NN"
    """NT: the second operand is stored by columns."""


def make_product(precision: str, shape: Shape, device: str, seed: int) -> Product:
    torch.manual_seed(seed)
    return MAKERS.get(precision, _plain)(precision, shape, device)


DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "fp16_acc16": torch.float16,
    "bf16": torch.bfloat16,
}


def _normal(rows: int, columns: int, device: str) -> torch.Tensor:
    return torch.randn(rows, columns, device=device)


def _plain(precision: str, shape: Shape, device: str) -> Product:
    dtype = DTYPES[precision]
    a = _normal(shape.m, shape.k, device).to(dtype)
    b = _normal(shape.k, shape.n, device).to(dtype)
    out = torch.empty(shape.m, shape.n, dtype=dtype, device=device)
    return Product(lambda: torch.mm(a, b, out=out), a, b)


def _fp8(_precision: str, shape: Shape, device: str) -> Product:
    """Scaled by tensor, so that the largest value is the format's; the second operand by columns; bf16 out."""
    a, a_scale = _quantised(_normal(shape.m, shape.k, device))
    b, b_scale = _quantised(_normal(shape.n, shape.k, device))
    one = torch.ones((), device=device)
    scales = {"scale_a": one * a_scale, "scale_b": one * b_scale}

    def call() -> torch.Tensor:
        return torch._scaled_mm(a, b.t(), out_dtype=torch.bfloat16, **scales)

    return Product(call, a, b.t(), a_scale * b_scale, layout="NT")


def _quantised(values: torch.Tensor) -> tuple[torch.Tensor, float]:
    scale = float(values.abs().max()) / FP8_LARGEST
    return (values / scale).to(torch.float8_e4m3fn), scale


def _int8(_precision: str, shape: Shape, device: str) -> Product:
    a = torch.randint(-127, 128, (shape.m, shape.k), device=device, dtype=torch.int8)
    b = torch.randint(-127, 128, (shape.n, shape.k), device=device, dtype=torch.int8)
    out = torch.empty(shape.m, shape.n, dtype=torch.int32, device=device)
    return Product(lambda: torch._int_mm(a, b.t(), out=out), a, b.t(), layout="NT")


MAKERS: dict[str, Callable[[str, Shape, str], Product]] = {"fp8": _fp8, "int8": _int8}
