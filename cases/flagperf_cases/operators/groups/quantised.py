"""Declare products with weights of few bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.groups.matmul import MODEL_SHAPES
from flagperf_cases.operators.operator import Cut, Operand, Operator, Shapes
from flagperf_cases.operators.tolerance import EXACT, Rounding

if TYPE_CHECKING:
    import torch

SHAPES: Shapes = {
    # One column more than 16 rows: smaller ones have no kernel on some cards.
    "model": tuple(sizes for sizes in MODEL_SHAPES if sizes["m"] >= 64),
    "tiny": ({"m": 32, "n": 64, "k": 128},),
}
GROUP = 128
"""Weights that share a scale."""


def _w4(x: Any, packed: Any, scales: Any) -> Any:
    """Two weights of 4 bits are in a byte; a scale belongs to 128 of them."""
    weights = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1).to(scales.dtype) - 8
    rows, columns = weights.shape
    scaled = (weights.view(rows, -1, GROUP) * scales[:, :, None]).view(rows, columns)
    return torch.nn.functional.linear(x, scaled)


OPERATORS: Sequence[Operator] = (
    Operator(
        name="int8_mm",
        group="quantised",
        shapes=SHAPES,
        operands=lambda m, n, k: (Operand((m, k), draw="whole"), Operand((k, n), draw="whole", layout="transposed")),
        outputs=lambda m, n, k: (Operand((m, n), "int32"),),
        call=lambda a, b: torch._int_mm(a, b),
        # Sums of 8-bit products are exact in float64, which the host multiplies quickly.
        reference=lambda a, b: (a.double() @ b.double()).int(),
        dtypes=("int8",),
        rule=EXACT,
        flops=lambda m, n, k: 2 * m * n * k,
        cut=Cut(),
    ),
    Operator(
        name="fp8_mm",
        group="quantised",
        shapes=SHAPES,
        operands=lambda m, n, k: (
            Operand((m, k)),
            Operand((k, n), layout="transposed"),
            Operand((), "fp32", draw="positive"),
            Operand((), "fp32", draw="positive"),
        ),
        outputs=lambda m, n, k: (Operand((m, n), "bf16"),),
        call=lambda a, b, scale_a, scale_b: torch._scaled_mm(
            a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16
        ),
        reference=lambda a, b, scale_a, scale_b: (a @ b) * scale_a * scale_b,
        dtypes=("fp8",),
        # Cards add up 8-bit products with fewer bits than fp32 has: about 14.
        rule=Rounding(ulps=4, inner=1 << 10, scale="rms", saved=True),
        terms=lambda m, n, k: k,
        flops=lambda m, n, k: 2 * m * n * k,
        cut=Cut(),
    ),
    Operator(
        name="w8a16_linear",
        group="quantised",
        shapes={
            "model": MODEL_SHAPES,
            "odd": ({"m": 13, "n": 1021, "k": 2049},),
            "tiny": ({"m": 7, "n": 65, "k": 129},),
        },
        operands=lambda m, n, k: (
            Operand((m, k)),
            Operand((n, k), "int8", draw="whole"),
            Operand((n,), draw="positive"),
        ),
        outputs=lambda m, n, k: (Operand((m, n)),),
        call=lambda x, weights, scales: torch.nn.functional.linear(x, weights.to(x.dtype)) * scales,
        reference=lambda x, weights, scales: (x @ weights.double().T) * scales,
        dtypes=("bf16",),
        rule=Rounding(ulps=4, scale="rms", saved=True),
        terms=lambda m, n, k: k,
        cut=Cut(),
    ),
    Operator(
        name="w4a16_linear",
        group="quantised",
        shapes={"model": MODEL_SHAPES, "tiny": ({"m": 7, "n": 33, "k": 256},)},
        operands=lambda m, n, k: (
            Operand((m, k)),
            Operand((n, k // 2), "uint8", draw="indices", high=256),
            Operand((n, k // GROUP), draw="positive"),
        ),
        outputs=lambda m, n, k: (Operand((m, n)),),
        call=_w4,
        dtypes=("fp16", "bf16"),
        # The product of weight and scale is rounded to the dtype of the row.
        rule=Rounding(ulps=4, scale="rms", saved=True),
        terms=lambda m, n, k: k,
        cut=Cut(),
    ),
)
