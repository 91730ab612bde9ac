"""Declare matrix products: limited by arithmetic where they are large, by reading the weights where they are skinny."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Cut, Operand, Operator, backward_rounding
from flagperf_cases.operators.tolerance import EXACT, Rounding

if TYPE_CHECKING:
    import torch

OF_PRODUCT = Rounding(scale="rms", saved=True)
"""Partial sums have the size of the results. They may be rounded to the dtype of the row once or twice (split sums)."""

# Projections of Llama 3 8B for one token, a batch of 8 and of 64 while decoding, and for 4096 tokens of a prompt.
MODEL_SHAPES = (
    {"m": 1, "n": 14336, "k": 4096},
    {"m": 8, "n": 4096, "k": 14336},
    {"m": 64, "n": 14336, "k": 4096},
    {"m": 4096, "n": 14336, "k": 4096},
    {"m": 4096, "n": 4096, "k": 14336},
)
ODD = ({"m": 1021, "n": 1533, "k": 2049},)
TINY = ({"m": 48, "n": 65, "k": 129},)


def product(
    name: str, call: Callable[..., Any], published: int, second: Callable[..., Operand], **more: Any
) -> Operator:
    def operands(m: int, n: int, k: int, layout: str = "contiguous") -> tuple[Operand, ...]:
        return Operand((m, k), layout=layout), second(n, k)

    return Operator(
        **{
            "name": name,
            "group": "matmul",
            "shapes": {
                "published": ({"m": published, "n": published, "k": published},),
                "model": MODEL_SHAPES,
                "odd": ODD,
                "strided": ({"m": 4096, "n": 4096, "k": 4096, "layout": "transposed"},),
                "tiny": TINY,
            },
            "operands": operands,
            "outputs": lambda m, n, k, layout="": (Operand((m, n)),),
            "call": call,
            "rule": OF_PRODUCT,
            "backward_rule": backward_rounding(),
            "terms": lambda m, n, k, layout="": k,
            "backward_terms": lambda m, n, k, layout="": max(m, n),
            "flops": lambda m, n, k, layout="": 2 * m * n * k,
            "cut": Cut(),
            **more,
        }
    )


OPERATORS: Sequence[Operator] = (
    product("mm", lambda a, b: torch.mm(a, b), 8192, lambda n, k: Operand((k, n))),
    product("linear", lambda x, w: torch.nn.functional.linear(x, w), 8192, lambda n, k: Operand((n, k))),
    product(
        "addmm",
        lambda c, a, b: torch.addmm(c, a, b),
        4096,
        lambda n, k: Operand((k, n)),
        operands=lambda m, n, k, layout="contiguous": (
            Operand((m, n)),
            Operand((m, k), layout=layout),
            Operand((k, n)),
        ),
        cut=Cut((0, 1)),
    ),
    Operator(
        name="bmm",
        group="matmul",
        shapes={
            "published": ({"batch": 2, "m": 4096, "n": 4096, "k": 4096},),
            # Attention scores of 32 heads.
            "model": ({"batch": 32, "m": 2048, "n": 2048, "k": 128}, {"batch": 256, "m": 1, "n": 2048, "k": 128}),
            "odd": ({"batch": 5, "m": 253, "n": 509, "k": 131},),
            "strided": ({"batch": 32, "m": 2048, "n": 2048, "k": 128, "layout": "transposed"},),
            "tiny": ({"batch": 3, "m": 17, "n": 33, "k": 65},),
        },
        operands=lambda batch, m, n, k, layout="contiguous": (
            Operand((batch, m, k), layout=layout),
            Operand((batch, k, n)),
        ),
        outputs=lambda batch, m, n, k, layout="": (Operand((batch, m, n)),),
        call=lambda a, b: torch.bmm(a, b),
        rule=OF_PRODUCT,
        backward_rule=backward_rounding(),
        terms=lambda batch, m, n, k, layout="": k,
        backward_terms=lambda batch, m, n, k, layout="": max(m, n),
        flops=lambda batch, m, n, k, layout="": 2 * batch * m * n * k,
        cut=Cut((0, 1)),
    ),
    Operator(
        name="mv",
        group="matmul",
        shapes={
            "published": ({"n": 1024, "k": 1024},),
            "model": ({"n": 14336, "k": 4096},),
            "odd": ({"n": 1021, "k": 2049},),
            "tiny": ({"n": 129, "k": 259},),
        },
        operands=lambda n, k: (Operand((n, k)), Operand((k,))),
        outputs=lambda n, k: (Operand((n,)),),
        call=lambda a, x: torch.mv(a, x),
        rule=OF_PRODUCT,
        terms=lambda n, k: k,
        cut=Cut(),
    ),
    Operator(
        name="outer",
        group="matmul",
        shapes={
            "published": ({"m": 10240, "n": 10240},),
            "odd": ({"m": 1021, "n": 4099},),
            "tiny": ({"m": 129, "n": 257},),
        },
        operands=lambda m, n: (Operand((m,)), Operand((n,))),
        outputs=lambda m, n: (Operand((m, n)),),
        call=lambda x, y: torch.outer(x, y),
        rule=Rounding(inner=0),
        cut=Cut(),
    ),
    Operator(
        name="triu",
        group="matmul",
        shapes={
            "published": ({"n": 51200},),
            "model": ({"n": 8192},),
            "odd": ({"n": 4099},),
            "tiny": ({"n": 259},),
        },
        operands=lambda n: (Operand((n, n)),),
        call=lambda x: torch.triu(x),
        rule=EXACT,
        widens=False,
        # Half of it is read, all of it is written.
        traffic=lambda element, n: n * (n + 1) // 2 * element + n * n * element,
    ),
)
