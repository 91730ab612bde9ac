"""Declare mixtures of experts: which experts a token goes to, the tokens in the order of experts, and their
products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Cut, Operand, Operator, backward_rounding
from flagperf_cases.operators.tolerance import EXACT, Order, Rounding

if TYPE_CHECKING:
    import torch


def group_ends(tokens: int, experts: int, skewed: bool = False) -> list[int]:
    """Return where the tokens of each expert end. Skewed: half of all tokens go to the first expert, half of the rest
    to the second, and so on, as an untrained router may send them."""
    ends, begin = [], 0
    for expert in range(experts):
        left = tokens - begin
        begin += left // 2 if skewed and expert < experts - 1 else -(-left // (experts - expert))
        ends.append(begin)
    return ends


def _grouped(x: Any, weights: Any, experts: int, skewed: bool = False) -> Any:
    ends = torch.tensor(group_ends(x.shape[0], experts, skewed), dtype=torch.int32).to(x.device)
    return torch.nn.functional.grouped_mm(x, weights, offs=ends)


def _one_by_one(x: Any, weights: Any, experts: int, skewed: bool = False) -> Any:
    ends = group_ends(x.shape[0], experts, skewed)
    parts = [x[begin:end] @ weights[index] for index, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))]
    return torch.cat(parts)


def _products(name: str, call: Any, **more: Any) -> Operator:
    return Operator(
        name=name,
        group="experts",
        shapes={
            # Mixtral 8x7B, a layer of DeepSeek-V2 Lite, and one of DeepSeek-V3 (its tokens go to 8 experts each).
            "model": (
                {"tokens": 8192, "width": 4096, "inner": 14336, "experts": 8},
                {"tokens": 8192, "width": 4096, "inner": 14336, "experts": 8, "skewed": True},
                {"tokens": 24576, "width": 2048, "inner": 1408, "experts": 64},
                {"tokens": 32768, "width": 7168, "inner": 2048, "experts": 256},
            ),
            "odd": ({"tokens": 1021, "width": 272, "inner": 528, "experts": 7, "skewed": True},),
            "tiny": ({"tokens": 67, "width": 32, "inner": 48, "experts": 4, "skewed": True},),
        },
        operands=lambda tokens, width, inner, experts, skewed=False: (
            Operand((tokens, width)),
            Operand((experts, width, inner)),
        ),
        outputs=lambda tokens, width, inner, experts, skewed=False: (Operand((tokens, inner)),),
        call=call,
        reference=_one_by_one,
        options=("experts", "skewed"),
        rule=Rounding(scale="rms", saved=True),
        backward_rule=backward_rounding(),
        terms=lambda tokens, width, inner, experts, skewed=False: width,
        backward_terms=lambda tokens, width, inner, experts, skewed=False: max(tokens, inner),
        flops=lambda tokens, width, inner, experts, skewed=False: 2 * tokens * width * inner,
        **more,
    )


OPERATORS: Sequence[Operator] = (
    Operator(
        name="moe_router",
        group="experts",
        shapes={
            "model": (
                {"tokens": 8192, "experts": 8, "k": 2},
                {"tokens": 8192, "experts": 64, "k": 8},
                {"tokens": 8192, "experts": 256, "k": 8},
            ),
            "odd": ({"tokens": 1021, "experts": 61, "k": 7},),
            "tiny": ({"tokens": 67, "experts": 16, "k": 3},),
        },
        operands=lambda tokens, experts, k: (Operand((tokens, experts)),),
        outputs=lambda tokens, experts, k: (Operand((tokens, k), "int64"),),
        call=lambda logits, k: torch.topk(torch.softmax(logits, 1, dtype=torch.float32), k).indices,
        # softmax keeps the order, so the reference needs no rounding.
        reference=lambda logits, k: torch.topk(logits, k).indices,
        options=("k",),
        rule=Order(),
        widens=False,
        cut=Cut(),
    ),
    Operator(
        name="moe_permute",
        group="experts",
        shapes={
            "model": (
                {"tokens": 8192, "width": 4096, "experts": 8, "k": 2},
                {"tokens": 8192, "width": 7168, "experts": 256, "k": 8},
            ),
            "odd": ({"tokens": 1021, "width": 259, "experts": 61, "k": 3},),
            "tiny": ({"tokens": 67, "width": 33, "experts": 16, "k": 3},),
        },
        operands=lambda tokens, width, experts, k: (
            Operand((tokens, width)),
            Operand((tokens, k), "int64", draw="indices", high=experts),
        ),
        outputs=lambda tokens, width, experts, k: (Operand((tokens * k, width)),),
        call=lambda x, chosen: x[torch.argsort(chosen.flatten(), stable=True) // chosen.shape[1]],
        rule=EXACT,
        widens=False,
        traffic=lambda element, tokens, width, experts, k: tokens * k * (2 * width * element + 16),
    ),
    _products("moe_grouped_mm", _grouped),
    _products("moe_expert_loop", _one_by_one),
)
