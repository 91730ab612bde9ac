"""Declare what makes few numbers of many: limited by reading them once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import FLOATS, Cut, Operand, Operator, Shapes
from flagperf_cases.operators.tolerance import EXACT, Order, Rounding, Rule

if TYPE_CHECKING:
    import torch

ALL_SHAPES: Shapes = {
    "published": ({"n": 1 << 30},),
    "model": ({"rows": 512, "columns": 4096}, {"rows": 8192, "columns": 14336}),
    "odd": ({"rows": 1021, "columns": 4099},),
    "strided": ({"rows": 4096, "columns": 4096, "layout": "transposed"},),
    "tiny": ({"rows": 61, "columns": 515, "layout": "every_other"},),
}
ROW_SHAPES: Shapes = {
    **ALL_SHAPES,
    "published": ({"rows": 81920, "columns": 81920},),
    # Logits of Llama 3 for a batch of 32.
    "model": ({"rows": 32, "columns": 128256}, {"rows": 8192, "columns": 4096}),
}


def of_all(
    name: str,
    call: Callable[..., Any],
    *,
    rule: Rule = EXACT,
    draw: str = "normal",
    dtypes: tuple[str, ...] = FLOATS,
    output: str = "",
    terms: Callable[..., int] = lambda layout="", **sizes: math.prod(sizes.values()),
    **more: Any,
) -> Operator:
    """Declare a reduction to one number. The reference reads the numbers as they are, since 2**30 of them do not fit
    twice."""
    return Operator(
        name=name,
        group="reduction",
        shapes=ALL_SHAPES,
        operands=lambda layout="contiguous", **sizes: (Operand(tuple(sizes.values()), draw=draw, layout=layout),),
        outputs=lambda **sizes: (Operand((), output),),
        call=call,
        dtypes=dtypes,
        rule=rule,
        terms=terms,
        widens=False,
        **more,
    )


def of_rows(name: str, call: Callable[..., Any], output: str = "", rule: Rule = EXACT, **more: Any) -> Operator:
    return Operator(
        name=name,
        group="reduction",
        shapes=ROW_SHAPES,
        operands=lambda rows, columns, layout="contiguous": (Operand((rows, columns), layout=layout),),
        outputs=lambda rows, columns, layout="": (Operand((rows,), output),),
        call=call,
        rule=rule,
        terms=lambda rows, columns, layout="": columns,
        widens=False,
        cut=Cut(),
        **more,
    )


CHUNK = 1 << 22


def _of_chunks(x: Any, of: Callable[[Any], Any]) -> Any:
    """Reduce in float64, some numbers at a time: 2**30 of them do not fit twice."""
    return torch.stack([of(chunk.double()) for chunk in x.reshape(-1).split(CHUNK)])


def _sum(x: Any) -> Any:
    return _of_chunks(x, torch.sum).sum()


def _norm(x: Any) -> Any:
    """Return the size of a sum of numbers of both signs."""
    return _of_chunks(x, lambda chunk: chunk.square().sum()).sum().sqrt()


OPERATORS: Sequence[Operator] = (
    of_all("sum", lambda x: x.sum(), reference=_sum, rule=Rounding(scale=_norm, saved=True)),
    of_all(
        "mean",
        lambda x: x.mean(),
        reference=lambda x: _sum(x) / x.numel(),
        rule=Rounding(scale=lambda x: _norm(x) / x.numel(), saved=True),
    ),
    of_all(
        "prod",
        lambda x: x.prod(),
        draw="factors",
        reference=lambda x: _of_chunks(x, torch.prod).prod(),
        # 64 factors are no signs. Some implementations round each product to the dtype of the row.
        rule=Rounding(ulps=16),
        terms=lambda **_: 64,
    ),
    of_all("max", lambda x: x.max(), dtypes=(*FLOATS, "int32")),
    of_all("min", lambda x: x.min(), dtypes=(*FLOATS, "int32")),
    of_all("all", lambda x: x.all(), draw="truths", dtypes=("int64",), output="bool"),
    of_rows("amax", lambda x: x.amax(1)),
    of_rows("argmax", lambda x: x.argmax(1), output="int64", rule=Order()),
    of_rows(
        "sum_dim",
        lambda x: x.sum(1),
        reference=lambda x: x.sum(1, dtype=torch.float64),
        rule=Rounding(scale="rms", saved=True),
        dtypes=FLOATS,
    ),
)
