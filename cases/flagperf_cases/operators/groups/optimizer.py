"""Declare a step of an optimizer over the tensors of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Operand, Operator
from flagperf_cases.operators.tolerance import Rounding

if TYPE_CHECKING:
    import torch

LEARNING_RATE, BETA1, BETA2, DECAY, EPSILON, STEP = 1e-3, 0.9, 0.95, 0.1, 1e-8, 10
"""As large language models are trained; the tenth step, when both means have values."""


def _split(tensors: tuple[Any, ...]) -> list[list[Any]]:
    count = len(tensors) // 5
    return [list(tensors[part * count : (part + 1) * count]) for part in range(5)]


def _adamw(*tensors: Any) -> Any:
    weights, gradients, means, squares, steps = _split(tensors)
    for step in steps:
        step.fill_(STEP)
    torch._fused_adamw_(
        weights, gradients, means, squares, [], steps, lr=LEARNING_RATE, beta1=BETA1, beta2=BETA2,
        weight_decay=DECAY, eps=EPSILON, amsgrad=False, maximize=False,
    )  # fmt: skip
    return tuple(weights)


def _reference(*tensors: Any) -> Any:
    weights, gradients, means, squares, _ = _split(tensors)
    found = []
    for weight, gradient, mean, square in zip(weights, gradients, means, squares, strict=True):
        new_mean = BETA1 * mean + (1 - BETA1) * gradient
        new_square = BETA2 * square + (1 - BETA2) * gradient**2
        size = (new_square / (1 - BETA2**STEP)).sqrt() + EPSILON
        decayed = weight * (1 - LEARNING_RATE * DECAY)
        found.append(decayed - LEARNING_RATE * new_mean / (1 - BETA1**STEP) / size)
    return tuple(found)


OPERATORS: Sequence[Operator] = (
    Operator(
        name="adamw_step",
        group="optimizer",
        shapes={
            # A model of 100 million parameters, and an eighth of 8 billion.
            "model": ({"parameters": 100_000_000, "tensors": 100}, {"parameters": 1_000_000_000, "tensors": 100}),
            "odd": ({"parameters": 13 * 10007, "tensors": 13},),
            "tiny": ({"parameters": 4 * 1021, "tensors": 4},),
        },
        # Weights, gradients and both means of every tensor, and the count of steps.
        operands=lambda parameters, tensors: (
            *(Operand((parameters // tensors,)),) * 3 * tensors,
            *(Operand((parameters // tensors,), draw="positive"),) * tensors,
            *(Operand((), "fp32"),) * tensors,
        ),
        outputs=lambda parameters, tensors: (Operand((parameters // tensors,)),) * tensors,
        call=_adamw,
        reference=_reference,
        dtypes=("fp32",),
        rule=Rounding(inner=8, scale="max"),
        # Weights and means are read and written, gradients read.
        traffic=lambda element, parameters, tensors: 7 * parameters * element,
        mutates=True,
    ),
)
