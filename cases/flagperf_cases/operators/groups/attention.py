"""Declare attention: prompts are limited by arithmetic, decoding by reading the keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.operator import Cut, Operand, Operator, backward_rounding
from flagperf_cases.operators.tolerance import Rounding

if TYPE_CHECKING:
    import torch

PAGE = 16
"""Tokens of a page of keys and values, as servers use it."""
QUERIES_AT_ONCE = 1024
"""Of the reference: all scores of a long prompt do not fit."""

OF_ATTENTION = Rounding(ulps=4, inner=64, scale="max", saved=True)
"""Probabilities are rounded to the dtype of the row before they weigh the values."""


def _attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
    )


def _reference(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Compute softmax(q k / sqrt(d)) v, some queries at a time."""
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    parts = [
        # Backward computes the scores once more, in place of keeping all of them.
        torch.utils.checkpoint.checkpoint(
            _some_queries, each, k, v, index * QUERIES_AT_ONCE, causal, use_reentrant=False
        )
        for index, each in enumerate(q.split(QUERIES_AT_ONCE, 2))
    ]
    return torch.cat(parts, 2)


def _some_queries(q: Any, k: Any, v: Any, begin: int, causal: bool) -> Any:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(begin + 1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(-1) @ v


def _decode(q: Any, k_pages: Any, v_pages: Any, table: Any) -> Any:
    batch = table.shape[0]
    k, v = (
        pages[table].reshape(batch, -1, pages.shape[2], pages.shape[3]).transpose(1, 2) for pages in (k_pages, v_pages)
    )
    return _attention(q, k, v)


def _decode_reference(q: Any, k_pages: Any, v_pages: Any, table: Any) -> Any:
    rows = [
        _reference(
            q[row : row + 1], *(pages[table[row]].flatten(0, 1).transpose(0, 1)[None] for pages in (k_pages, v_pages))
        )
        for row in range(table.shape[0])
    ]
    return torch.cat(rows)


def _decode_operands(batch: int, heads: int, kv_heads: int, length: int, width: int) -> tuple[Operand, ...]:
    num_pages = batch * -(-length // PAGE)
    pages = Operand((num_pages, PAGE, kv_heads, width))
    table = Operand((batch, num_pages // batch), "int64", draw="permutation")
    return Operand((batch, heads, 1, width)), pages, pages, table


def llama(length: int, kv_heads: int = 8, batch: int = 1, **options: bool) -> dict[str, Any]:
    """Return a shape of Llama 3 8B, or with 32 heads of keys and values of Llama 2 7B."""
    return {"batch": batch, "heads": 32, "kv_heads": kv_heads, "length": length, "width": 128, **options}


OPERATORS: Sequence[Operator] = (
    Operator(
        name="attention",
        group="attention",
        shapes={
            "model": (
                llama(2048, causal=True),
                llama(8192, causal=True),
                llama(32768, causal=True),
                llama(2048, 32, causal=True),
                llama(2048),
                llama(8192),
            ),
            "odd": ({"batch": 1, "heads": 7, "kv_heads": 7, "length": 1021, "width": 80, "causal": True},),
            "tiny": (
                {"batch": 1, "heads": 4, "kv_heads": 2, "length": 65, "width": 16, "causal": True},
                {"batch": 2, "heads": 3, "kv_heads": 3, "length": 33, "width": 24},
            ),
        },
        operands=lambda batch, heads, kv_heads, length, width, causal=False: (
            Operand((batch, heads, length, width)),
            Operand((batch, kv_heads, length, width)),
            Operand((batch, kv_heads, length, width)),
        ),
        call=_attention,
        reference=_reference,
        options=("causal",),
        rule=OF_ATTENTION,
        backward_rule=backward_rounding(inner=128),
        terms=lambda length, width, **_: max(length, width),
        flops=lambda batch, heads, kv_heads, length, width, causal=False: (
            4 * batch * heads * length * length * width // (2 if causal else 1)
        ),
        backward_flops=2.5,
        cut=Cut((0, 1, 2), dim=1),
    ),
    Operator(
        name="attention_decode",
        group="attention",
        shapes={
            "model": (
                llama(1024),
                llama(32768),
                llama(4096, batch=16),
                llama(4096, batch=128),
                llama(2048, 32, batch=32),
            ),
            "odd": ({"batch": 3, "heads": 14, "kv_heads": 7, "length": 1008, "width": 80},),
            "tiny": ({"batch": 3, "heads": 4, "kv_heads": 2, "length": 64, "width": 16},),
        },
        operands=_decode_operands,
        call=_decode,
        reference=_decode_reference,
        rule=OF_ATTENTION,
        terms=lambda length, width, **_: max(length, width),
        # Keys and values once: queries and results are nothing beside them.
        traffic=lambda element, batch, heads, kv_heads, length, width: 2 * batch * kv_heads * length * width * element,
    ),
)
