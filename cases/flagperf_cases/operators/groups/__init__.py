"""List all operators, by groups. Importable without torch: `bind_torch` gives it to the modules before a call."""

from __future__ import annotations

from flagperf_cases.operators.groups import (
    attention,
    convolution,
    copies,
    experts,
    gated,
    indexing,
    losses,
    matmul,
    normalisation,
    optimizer,
    pointwise,
    quantised,
    random,
    reductions,
    sorting,
)
from flagperf_cases.operators.operator import Operator

MODULES = (
    pointwise,
    reductions,
    matmul,
    attention,
    normalisation,
    losses,
    gated,
    convolution,
    indexing,
    sorting,
    experts,
    quantised,
    copies,
    random,
    optimizer,
)

OPERATORS: dict[str, Operator] = {operator.name: operator for module in MODULES for operator in module.OPERATORS}

# fmt: off
PUBLISHED = (
    "abs", "add", "addmm", "all", "amax", "argmax", "bitwise_and", "bitwise_not", "bitwise_or", "bmm", "cos",
    "cross_entropy_loss", "div", "dropout", "eq", "exp", "ge", "gelu", "group_norm", "gt", "isinf", "isnan",
    "layer_norm", "le", "linear", "log_softmax", "lt", "max", "mean", "min", "mm", "mul", "mv", "native_dropout",
    "native_group_norm", "ne", "neg", "outer", "pow", "prod", "reciprocal", "relu", "rsqrt", "rsub", "sigmoid",
    "silu", "sin", "softmax", "sub", "sum", "tanh", "triu",
)
# fmt: on
"""The operators of the published results."""


def bind_torch() -> None:
    """Give torch to the modules, whose calls name it: only a worker imports it."""
    import torch
    import torch.utils.checkpoint

    for module in MODULES:
        vars(module)["torch"] = torch
