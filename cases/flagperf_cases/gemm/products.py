"""The operands of a product in each precision, the call that is timed, and what its output is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from flagperf_cases.buffers import WINDOW_EXTRA, all_windows, in_turns
from flagperf_cases.gemm.shapes import Shape

FP8_LARGEST = 448.0
"""Of float8_e4m3fn."""


class Multiplied(NamedTuple):
    """What a call gives: its output, and the first operand that it had."""

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
    torch.manual_seed(seed)
    return MAKERS.get(precision, _plain)(precision, shape, device)


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


def _num_numbers(shape: Shape) -> int:
    """Of all windows for the first operand."""
    return shape.m * shape.k + WINDOW_EXTRA


def _plain(precision: str, shape: Shape, device: str) -> Product:
    """float64 is drawn as such: numbers of 24 bits would not tell a card that rounds to float32."""
    dtype = DTYPES[precision]
    drawn = torch.float64 if precision == "fp64" else torch.float32
    numbers = torch.randn(_num_numbers(shape), dtype=drawn, device=device).to(dtype)
    b = torch.randn(shape.k, shape.n, dtype=drawn, device=device).to(dtype)
    out = torch.empty(shape.m, shape.n, dtype=dtype, device=device)
    return Product(multiply_in_turns(lambda a: torch.mm(a, b, out=out), numbers, shape), numbers, b)


def _fp8(_precision: str, shape: Shape, device: str) -> Product:
    """Scaled by tensor, so that the largest value is the format's; the second operand by columns; bf16 out."""
    numbers, a_scale = _quantised(torch.randn(_num_numbers(shape), device=device))
    b, b_scale = _quantised(torch.randn(shape.n, shape.k, device=device))
    one = torch.ones((), device=device)
    multiply = _ScaledProduct(b.t(), one * a_scale, one * b_scale, shape)
    call = multiply_in_turns(multiply, numbers, shape)
    return Product(call, numbers, b.t(), a_scale * b_scale, facts=multiply.facts)


class _ScaledProduct:
    """Into an output that exists, where this torch can do that on this device: the first call finds out. Otherwise
    every call allocates one."""

    def __init__(self, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor, shape: Shape) -> None:
        self._b = b
        self._settings = {
            "scale_a": a_scale, "scale_b": b_scale, "out_dtype": torch.bfloat16, "use_fast_accum": False,
        }  # fmt: skip
        self._out = {"out": torch.empty(shape.m, shape.n, dtype=torch.bfloat16, device=b.device)}
        self._is_tried = False

    def __call__(self, a: torch.Tensor) -> torch.Tensor:
        return self._multiply(a) if self._is_tried else self._try(a)

    def _multiply(self, a: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, self._b, **self._settings, **self._out)

    def _try(self, a: torch.Tensor) -> torch.Tensor:
        """What else may be wrong, the call without such an output raises as well."""
        self._is_tried = True
        try:
            return self._multiply(a)
        except (RuntimeError, TypeError):
            self._out = {}
        return self._multiply(a)

    def facts(self) -> dict[str, str]:
        output = "exists before the call" if self._out else "allocated by the call"
        return {"layout": "NT", "scaling": "per tensor", "fast_accumulation": "off", "output": output}


def _quantised(values: torch.Tensor) -> tuple[torch.Tensor, float]:
    scale = float(values.abs().max()) / FP8_LARGEST
    return (values / scale).to(torch.float8_e4m3fn), scale


def _int8(_precision: str, shape: Shape, device: str) -> Product:
    numbers = torch.randint(-127, 128, (_num_numbers(shape),), device=device, dtype=torch.int8)
    b = torch.randint(-127, 128, (shape.n, shape.k), device=device, dtype=torch.int8)
    out = torch.empty(shape.m, shape.n, dtype=torch.int32, device=device)
    call = multiply_in_turns(lambda a: torch._int_mm(a, b.t(), out=out), numbers, shape)
    return Product(call, numbers, b.t(), facts=lambda: {"layout": "NT"})


MAKERS: dict[str, Callable[[str, Shape, str], Product]] = {"fp8": _fp8, "int8": _int8}
