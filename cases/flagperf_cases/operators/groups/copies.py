"""Declare what puts data in another place, order or dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import FLOATS, Operand, Operator, Shapes
from flagperf_cases.operators.tolerance import EXACT, Rounding, Rule

if TYPE_CHECKING:
    import torch

SHAPES: Shapes = {
    "model": ({"rows": 8192, "columns": 4096}, {"rows": 16384, "columns": 16384}),
    "odd": ({"rows": 1021, "columns": 4099},),
    "tiny": ({"rows": 61, "columns": 515},),
}


def copy(name: str, call: Callable[..., Any], rule: Rule = EXACT, **more: Any) -> Operator:
    return Operator(
        **{
            "name": name,
            "group": "copy",
            "shapes": SHAPES,
            "operands": lambda rows, columns: (Operand((rows, columns)),),
            "call": call,
            "dtypes": (*FLOATS, "int32"),
            "rule": rule,
            "widens": False,
            **more,
        }
    )


OPERATORS: Sequence[Operator] = (
    copy(
        "transpose_copy",
        lambda x: x.t().contiguous(),
        outputs=lambda rows, columns: (Operand((columns, rows)),),
    ),
    copy(
        "strided_copy",
        lambda x: x.contiguous(),
        operands=lambda rows, columns: (Operand((rows, columns), layout="every_other"),),
    ),
    copy(
        "cat",
        lambda x, y: torch.cat((x, y), 1),
        operands=lambda rows, columns: (Operand((rows, columns)), Operand((rows, columns))),
        outputs=lambda rows, columns: (Operand((rows, 2 * columns)),),
    ),
    copy(
        "cast_to_fp32",
        lambda x: x.to(torch.float32),
        dtypes=("fp16", "bf16"),
        outputs=lambda rows, columns: (Operand((rows, columns), "fp32"),),
    ),
    copy(
        "cast_to_bf16",
        lambda x: x.to(torch.bfloat16),
        rule=Rounding(ulps=1, inner=0),
        # A reference that rounds would hide an implementation that rounds otherwise.
        reference=lambda x: x.double(),
        dtypes=("fp32", "fp16"),
        outputs=lambda rows, columns: (Operand((rows, columns), "bf16"),),
    ),
)
