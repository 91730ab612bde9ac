"""Declare what is computed element by element: limited by memory, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import FLOATS, Cut, Operand, Operator, Shapes, backward_rounding
from flagperf_cases.operators.tolerance import EXACT, Rounding, Rule

if TYPE_CHECKING:
    import torch

SHAPES: Shapes = {
    "published": ({"n": 1 << 30},),
    # Activations of Llama 3 8B: one token, 512, and the inner width of its feed-forward layer for 8192 tokens.
    "model": ({"rows": 1, "columns": 4096}, {"rows": 512, "columns": 4096}, {"rows": 8192, "columns": 14336}),
    "odd": ({"rows": 1021, "columns": 4099},),
    "strided": ({"rows": 4096, "columns": 4096, "layout": "transposed"},),
    "tiny": ({"rows": 61, "columns": 515, "layout": "every_other"},),
}
BROADCAST: Shapes = {**SHAPES, "strided": (*SHAPES["strided"], {"rows": 8192, "columns": 4096, "layout": "broadcast"})}

OF_MEMORY = Rounding(inner=0)
"""One rounding: the result of the exact operation, to the dtype of the row. On cards a division may be 2 ulps off."""
OF_FUNCTION = Rounding(inner=8, scale="rms")
"""Elementary functions of vendors are good to a few ulps, in units of the arguments near zeros and in tails."""


def pointwise(
    name: str,
    call: Callable[..., Any],
    *,
    num_operands: int = 1,
    draw: str = "normal",
    output: str = "",
    rule: Rule = OF_MEMORY,
    backward: bool = False,
    dtypes: tuple[str, ...] = FLOATS,
    group: str = "pointwise",
    **more: Any,
) -> Operator:
    def shape(sizes: dict[str, int]) -> tuple[int, ...]:
        return tuple(sizes.values())

    def operands(layout: str = "contiguous", **sizes: int) -> tuple[Operand, ...]:
        # Of two operands only the second is broadcast: that is how biases and scales are applied.
        layouts = ["contiguous" if layout == "broadcast" else layout] * (num_operands - 1) + [layout]
        return tuple(Operand(shape(sizes), draw=draw, layout=each) for each in layouts)

    return Operator(
        name=name,
        group=group,
        shapes=SHAPES if num_operands == 1 else BROADCAST,
        operands=operands,
        outputs=lambda layout="", **sizes: (Operand(shape(sizes), output),),
        call=call,
        dtypes=dtypes,
        rule=rule,
        backward_rule=backward_rounding() if backward else None,
        cut=Cut(tuple(range(num_operands))),
        **more,
    )


def compare(name: str, call: Callable[..., Any]) -> Operator:
    return pointwise(
        name, call, num_operands=2, draw="levels", output="bool", rule=EXACT, dtypes=NUMBERS, widens=False,
        group="compare",
    )  # fmt: skip


def bitwise(name: str, call: Callable[..., Any], num_operands: int) -> Operator:
    return pointwise(
        name, call, num_operands=num_operands, draw="bits", rule=EXACT, dtypes=("int16", "int32"), group="bitwise"
    )


NUMBERS = (*FLOATS, "int32")
FUNCTION: dict[str, Any] = {"rule": OF_FUNCTION, "backward": True}

OPERATORS: Sequence[Operator] = (
    pointwise("abs", lambda x: torch.abs(x), dtypes=NUMBERS),
    pointwise("neg", lambda x: torch.neg(x), dtypes=NUMBERS),
    pointwise("mul", lambda x: torch.mul(x, 3), dtypes=NUMBERS),
    pointwise("div", lambda x: torch.div(x, 3), rule=Rounding(inner=2)),
    pointwise("pow", lambda x: torch.pow(x, 2), rule=Rounding(inner=16), backward=True),
    pointwise("rsqrt", lambda x: torch.rsqrt(x), draw="positive", rule=Rounding(), backward=True),
    pointwise("reciprocal", lambda x: torch.reciprocal(x), draw="nonzero", rule=Rounding(), backward=True),
    pointwise("exp", lambda x: torch.exp(x), rule=Rounding(inner=8), backward=True),
    pointwise("cos", lambda x: torch.cos(x), **FUNCTION),
    pointwise("sin", lambda x: torch.sin(x), **FUNCTION),
    # In its tail 1 + erf(x) is a difference, and has the error of erf near 1.
    pointwise("gelu", lambda x: torch.nn.functional.gelu(x), rule=Rounding(inner=32, scale="rms"), backward=True),
    pointwise("relu", lambda x: torch.relu(x), rule=EXACT, backward=True),
    pointwise("sigmoid", lambda x: torch.sigmoid(x), rule=Rounding(inner=8), backward=True),
    pointwise("tanh", lambda x: torch.tanh(x), rule=Rounding(inner=8), backward=True),
    pointwise("silu", lambda x: torch.nn.functional.silu(x), rule=Rounding(inner=8), backward=True),
    pointwise("add", lambda x, y: torch.add(x, y), num_operands=2, dtypes=NUMBERS),
    pointwise("sub", lambda x, y: torch.sub(x, y), num_operands=2, dtypes=NUMBERS),
    pointwise("rsub", lambda x, y: torch.rsub(x, y), num_operands=2, dtypes=NUMBERS),
    pointwise("where", lambda x, y: torch.where(x > y, x, y), num_operands=2, rule=EXACT, dtypes=NUMBERS, widens=False),
    pointwise("isnan", lambda x: torch.isnan(x), draw="special", output="bool", rule=EXACT, group="compare"),
    pointwise("isinf", lambda x: torch.isinf(x), draw="special", output="bool", rule=EXACT, group="compare"),
    compare("eq", lambda x, y: torch.eq(x, y)),
    compare("ne", lambda x, y: torch.ne(x, y)),
    compare("ge", lambda x, y: torch.ge(x, y)),
    compare("gt", lambda x, y: torch.gt(x, y)),
    compare("le", lambda x, y: torch.le(x, y)),
    compare("lt", lambda x, y: torch.lt(x, y)),
    bitwise("bitwise_and", lambda x, y: torch.bitwise_and(x, y), 2),
    bitwise("bitwise_or", lambda x, y: torch.bitwise_or(x, y), 2),
    bitwise("bitwise_not", lambda x: torch.bitwise_not(x), 1),
)
