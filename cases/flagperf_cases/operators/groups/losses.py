"""Declare losses over a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flagperf_cases.operators.operator import Operand, Operator, backward_rounding
from flagperf_cases.operators.tolerance import Rounding

if TYPE_CHECKING:
    import torch

OF_LOSS = Rounding(inner=32, scale="max", saved=True)

OPERATORS: Sequence[Operator] = (
    Operator(
        name="cross_entropy_loss",
        group="loss",
        shapes={
            "published": ({"rows": 1024, "columns": 128000},),
            "model": ({"rows": 8192, "columns": 32000}, {"rows": 8192, "columns": 128256}),
            "odd": ({"rows": 1021, "columns": 4099},),
            "tiny": ({"rows": 37, "columns": 259},),
        },
        operands=lambda rows, columns: (
            Operand((rows, columns)),
            Operand((rows,), "int64", draw="indices", high=columns),
        ),
        outputs=lambda rows, columns: (Operand(()),),
        call=lambda x, labels: torch.nn.functional.cross_entropy(x, labels),
        rule=OF_LOSS,
        backward_rule=backward_rounding(inner=64),
        terms=lambda rows, columns: columns,
        backward_traffic=lambda element, rows, columns: 2 * rows * columns * element,
    ),
    Operator(
        name="linear_cross_entropy",
        group="loss",
        shapes={
            # The head of Llama 2 and of Llama 3 8B with its loss.
            "model": (
                {"rows": 4096, "width": 4096, "columns": 32000},
                {"rows": 4096, "width": 4096, "columns": 128256},
            ),
            "odd": ({"rows": 509, "width": 1021, "columns": 4099},),
            "tiny": ({"rows": 33, "width": 65, "columns": 131},),
        },
        operands=lambda rows, width, columns: (
            Operand((rows, width)),
            Operand((columns, width), draw="small"),
            Operand((rows,), "int64", draw="indices", high=columns),
        ),
        outputs=lambda rows, width, columns: (Operand(()),),
        call=lambda x, w, labels: torch.nn.functional.cross_entropy(torch.nn.functional.linear(x, w), labels),
        # The logits are rounded to the dtype of the row, and their largest decides the loss.
        rule=OF_LOSS,
        backward_rule=backward_rounding(inner=64, ulps=16),
        terms=lambda rows, width, columns: max(width, columns),
        backward_terms=lambda rows, width, columns: max(rows, width, columns),
        flops=lambda rows, width, columns: 2 * rows * width * columns,
    ),
)
