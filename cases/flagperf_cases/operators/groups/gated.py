"""Declare gated activations of feed-forward layers, and rotary positions: pointwise on several tensors of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Cut, Operand, Operator, backward_rounding
from flagperf_cases.operators.tolerance import Rounding

if TYPE_CHECKING:
    import torch


def gated(name: str, call: Callable[..., Any]) -> Operator:
    return Operator(
        name=name,
        group="gated",
        shapes={
            # Inner widths of Llama 3 8B and of an expert of Mixtral-like models; one token while decoding.
            "model": ({"tokens": 8192, "width": 14336}, {"tokens": 1, "width": 14336}, {"tokens": 8192, "width": 1408}),
            "odd": ({"tokens": 1021, "width": 4099},),
            "strided": ({"tokens": 4096, "width": 4096, "layout": "every_other"},),
            "tiny": ({"tokens": 33, "width": 172},),
        },
        operands=lambda tokens, width, layout="contiguous": (Operand((tokens, width), layout=layout),) * 2,
        call=call,
        # The activation is rounded to the dtype of the row before it is multiplied.
        rule=Rounding(ulps=4, inner=64, scale="rms"),
        backward_rule=backward_rounding(),
        cut=Cut((0, 1)),
    )


def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-right, left), dim=-1) * sin[:, None]


OPERATORS: Sequence[Operator] = (
    gated("swiglu", lambda gate, up: torch.nn.functional.silu(gate) * up),
    gated("geglu", lambda gate, up: torch.nn.functional.gelu(gate) * up),
    Operator(
        name="rope",
        group="gated",
        shapes={
            # Query and key heads of Llama 3 8B, Llama 3 70B, and of one token.
            "model": (
                {"tokens": 8192, "heads": 40, "width": 128},
                {"tokens": 8192, "heads": 72, "width": 128},
                {"tokens": 1, "heads": 40, "width": 128},
            ),
            "odd": ({"tokens": 1021, "heads": 13, "width": 96},),
            "tiny": ({"tokens": 31, "heads": 5, "width": 32},),
        },
        operands=lambda tokens, heads, width: (
            Operand((tokens, heads, width)),
            Operand((tokens, width), has_gradient=False),
            Operand((tokens, width), has_gradient=False),
        ),
        call=_rope,
        # Both products are rounded before they are added.
        rule=Rounding(ulps=4, inner=4, scale="max", saved=True),
        backward_rule=backward_rounding(),
        cut=Cut((0, 1, 2)),
    ),
)
