"""Declare normalisation and softmax: rows are read, reduced, and written again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Cut, Operand, Operator, Shapes, backward_rounding
from flagperf_cases.operators.tolerance import Rounding

if TYPE_CHECKING:
    import torch

OF_ROW = Rounding(ulps=4, inner=32, scale="max")
"""Mean, variance and root are exact to a few roundings of a row's largest number."""
OF_SOFTMAX = Rounding(inner=48)
"""exp(x - max) is off by as many roundings as x - max is large: rarely more than 16 for normal numbers."""
OF_GRADIENTS = backward_rounding(inner=64, ulps=8)
"""Partial sums of a weight's gradient over the rows are kept in the dtype of the row by some implementations."""

WIDTHS = (1024, 4096, 8192)
ROWS: Shapes = {
    "model": (*({"rows": 8192, "columns": width} for width in WIDTHS), {"rows": 1, "columns": 4096}),
    "odd": ({"rows": 1021, "columns": 4099},),
    "strided": ({"rows": 4096, "columns": 4096, "layout": "every_other"},),
    "tiny": ({"rows": 37, "columns": 259},),
}
LOGITS: Shapes = {
    "model": (
        {"rows": 8192, "columns": 2048},
        {"rows": 8192, "columns": 32000},
        {"rows": 8192, "columns": 128256},
    ),
    "odd": ({"rows": 1021, "columns": 4099},),
    "strided": ({"rows": 4096, "columns": 4096, "layout": "every_other"},),
    "tiny": ({"rows": 37, "columns": 259},),
}


def of_rows(name: str, call: Callable[..., Any], num_weights: int, residual: bool = False, **more: Any) -> Operator:
    def operands(rows: int, columns: int, layout: str = "contiguous") -> tuple[Operand, ...]:
        activations = (Operand((rows, columns), layout=layout),) * (2 if residual else 1)
        return (*activations, *(Operand((columns,)),) * num_weights)

    def outputs(rows: int, columns: int, layout: str = "") -> tuple[Operand, ...]:
        return (Operand((rows, columns)),) * (2 if residual else 1)

    return Operator(
        **{
            "name": name,
            "group": "normalisation",
            "shapes": ROWS,
            "operands": operands,
            "outputs": outputs,
            "call": call,
            "rule": OF_ROW,
            "backward_rule": OF_GRADIENTS,
            "terms": lambda rows, columns, layout="": columns,
            "backward_terms": lambda rows, columns, layout="": max(rows, columns),
            "cut": Cut((0, 1) if residual else (0,)),
            **more,
        }
    )


def _layer_norm_operands(layout: str = "contiguous", **sizes: int) -> tuple[Operand, ...]:
    first, *rest = sizes.values()
    return Operand((first, *rest), layout=layout), Operand(tuple(rest)), Operand(tuple(rest))


def _add_rms_norm(x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return torch.nn.functional.rms_norm(total, (total.shape[-1],), weight, 1e-5), total


def group_norm(name: str, call: Callable[..., Any], columns: int) -> Operator:
    return Operator(
        name=name,
        group="normalisation",
        shapes={
            "published": ({"batch": 20, "channels": 6, "columns": columns, "groups": 3},),
            # Blocks of the U-Net of Stable Diffusion.
            "model": (
                {"batch": 2, "channels": 320, "columns": 4096, "groups": 32},
                {"batch": 2, "channels": 1280, "columns": 256, "groups": 32},
            ),
            "odd": ({"batch": 3, "channels": 15, "columns": 1021, "groups": 5},),
            "tiny": ({"batch": 2, "channels": 6, "columns": 259, "groups": 3},),
        },
        operands=lambda batch, channels, columns, groups: (
            Operand((batch, channels, columns)),
            Operand((channels,)),
            Operand((channels,)),
        ),
        call=call,
        options=("groups",),
        rule=OF_ROW,
        backward_rule=OF_GRADIENTS,
        terms=lambda batch, channels, columns, groups: channels // groups * columns,
        backward_terms=lambda batch, channels, columns, groups: max(batch, channels // groups) * columns,
        cut=Cut(),
    )


def softmax(name: str, call: Callable[..., Any], published: dict[str, int], rule: Rounding) -> Operator:
    return Operator(
        name=name,
        group="normalisation",
        shapes={"published": (published,), **LOGITS},
        operands=lambda layout="contiguous", **sizes: (Operand(tuple(sizes.values()), layout=layout),),
        outputs=lambda layout="", **sizes: (Operand(tuple(sizes.values())),),
        call=call,
        rule=rule,
        backward_rule=OF_GRADIENTS,
        terms=lambda rows, columns, inner=1, layout="": columns,
        cut=Cut(),
        # The output and its gradient are read, the input's gradient is written.
        backward_traffic=lambda element, layout="", **sizes: 3 * math.prod(sizes.values()) * element,
    )


OPERATORS: Sequence[Operator] = (
    of_rows(
        "layer_norm",
        lambda x, weight, bias: torch.nn.functional.layer_norm(x, weight.shape, weight, bias),
        num_weights=2,
        shapes={"published": ({"rows": 20, "channels": 6, "columns": 1048576},), **ROWS},
        operands=_layer_norm_operands,
        outputs=lambda layout="", **sizes: (Operand(tuple(sizes.values())),),
        terms=lambda rows, columns, channels=1, layout="": channels * columns,
        backward_terms=lambda rows, columns, channels=1, layout="": max(rows, channels * columns),
    ),
    of_rows(
        "rms_norm",
        lambda x, weight: torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5),
        num_weights=1,
        reference=lambda x, weight: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight,
        # The normalised row may be rounded before it is multiplied by the weight.
        rule=Rounding(ulps=4, inner=32, scale="max"),
    ),
    of_rows(
        "add_rms_norm",
        _add_rms_norm,
        num_weights=1,
        residual=True,
        rule=Rounding(ulps=4, inner=32, scale="max", saved=True),
    ),
    group_norm(
        "group_norm",
        lambda x, weight, bias, groups: torch.nn.functional.group_norm(x, groups, weight, bias),
        columns=65536,
    ),
    group_norm(
        "native_group_norm",
        lambda x, weight, bias, groups: torch.native_group_norm(x, weight, bias, *x.shape, groups, 1e-5)[0],
        columns=32768,
    ),
    softmax("softmax", lambda x: torch.softmax(x, 1), {"rows": 1024, "columns": 1024, "inner": 1024}, OF_SOFTMAX),
    softmax(
        "log_softmax",
        lambda x: torch.log_softmax(x, 1),
        {"rows": 1048576, "columns": 10},
        Rounding(inner=16, scale="max"),
    ),
    Operator(
        name="batch_norm",
        group="normalisation",
        shapes={
            # ResNet-50 with 64 images.
            "model": (
                {"batch": 64, "channels": 64, "height": 112, "width": 112},
                {"batch": 64, "channels": 256, "height": 56, "width": 56},
                {"batch": 64, "channels": 2048, "height": 7, "width": 7},
            ),
            "odd": ({"batch": 7, "channels": 13, "height": 57, "width": 55},),
            "strided": ({"batch": 64, "channels": 256, "height": 56, "width": 56, "layout": "channels_last"},),
            "tiny": ({"batch": 3, "channels": 5, "height": 13, "width": 11},),
        },
        operands=lambda batch, channels, height, width, layout="contiguous": (
            Operand((batch, channels, height, width), layout=layout),
            Operand((channels,)),
            Operand((channels,)),
        ),
        call=lambda x, weight, bias: torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True),
        # Scale and shift of a channel may be rounded to the dtype of the row.
        rule=Rounding(inner=32, scale="max", saved=True),
        backward_rule=OF_GRADIENTS,
        terms=lambda batch, channels, height, width, layout="": batch * height * width,
        # Statistics have to be known before the first element is written: it is read twice.
        traffic=lambda element, batch, channels, height, width, layout="": (
            3 * batch * channels * height * width * element
        ),
    ),
)
