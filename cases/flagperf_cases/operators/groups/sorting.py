"""Declare order within rows, and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagperf_cases.operators.operator import FLOATS, Cut, Operand, Operator, Shapes
from flagperf_cases.operators.tolerance import Order, Rounding

if TYPE_CHECKING:
    import torch

# Logits of Llama 3: one request, and a batch of 64.
LOGITS: Shapes = {
    "model": ({"rows": 1, "columns": 128256}, {"rows": 64, "columns": 128256}),
    "odd": ({"rows": 13, "columns": 10007},),
    "tiny": ({"rows": 7, "columns": 1021},),
}

OPERATORS: Sequence[Operator] = (
    Operator(
        name="sort",
        group="sorting",
        shapes={**LOGITS, "strided": ({"rows": 512, "columns": 4096, "layout": "transposed"},)},
        operands=lambda rows, columns, layout="contiguous": (Operand((rows, columns), layout=layout),),
        outputs=lambda rows, columns, layout="": (Operand((rows, columns), "int64"),),
        call=lambda x: torch.sort(x, dim=1, descending=True).indices,
        dtypes=(*FLOATS, "int32"),
        rule=Order(),
        widens=False,
        cut=Cut(),
        # The sorted numbers are written too.
        traffic=lambda element, rows, columns, layout="": rows * columns * (2 * element + 8),
    ),
    Operator(
        name="topk",
        group="sorting",
        shapes={
            "model": ({"rows": 1, "columns": 128256, "k": 50}, {"rows": 64, "columns": 128256, "k": 50}),
            "odd": ({"rows": 13, "columns": 10007, "k": 7},),
            "tiny": ({"rows": 7, "columns": 1021, "k": 5},),
        },
        operands=lambda rows, columns, k: (Operand((rows, columns)),),
        outputs=lambda rows, columns, k: (Operand((rows, k), "int64"),),
        call=lambda x, k: torch.topk(x, k).indices,
        options=("k",),
        rule=Order(),
        widens=False,
        cut=Cut(),
        traffic=lambda element, rows, columns, k: rows * (columns * element + k * (8 + element)),
    ),
    Operator(
        name="cumsum",
        group="sorting",
        shapes={**LOGITS, "strided": ({"rows": 512, "columns": 4096, "layout": "transposed"},)},
        operands=lambda rows, columns, layout="contiguous": (Operand((rows, columns), layout=layout),),
        outputs=lambda rows, columns, layout="": (Operand((rows, columns)),),
        call=lambda x: torch.cumsum(x, 1),
        rule=Rounding(scale="max", saved=True),
        terms=lambda rows, columns, layout="": columns,
        cut=Cut(),
    ),
)
