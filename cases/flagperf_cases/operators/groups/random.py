"""Declare random numbers, which are checked by their statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flagperf_cases.operators.groups.pointwise import SHAPES
from flagperf_cases.operators.operator import Operand, Operator
from flagperf_cases.operators.tolerance import Statistics

if TYPE_CHECKING:
    import torch

DROPPED = 0.3

Statistic = dict[str, tuple[float, float, float]]


def _dropout_statistics(found: Any, x: Any) -> Statistic:
    """Kept numbers are scaled, the others are zero; as many are kept as expected, in both halves."""
    kept = found != 0
    scaled = x.double() / (1 - DROPPED)
    wrong = kept & ((found.double() - scaled).abs() > 2 * torch.finfo(found.dtype).eps * scaled.abs())
    statistics: Statistic = {"kept numbers that are not scaled": (float(wrong.sum()), 0.0, 0.0)}
    for name, half in zip(("first", "second"), kept[x != 0].chunk(2), strict=True):
        deviation = math.sqrt(DROPPED * (1 - DROPPED) / half.numel())
        statistics[f"share kept of the {name} half"] = (float(half.double().mean()), 1 - DROPPED, deviation)
    return statistics


def _moments(mean: float, variance: float, fourth: float) -> Callable[..., Statistic]:
    """Return the statistics of independent numbers with these moments; neighbours are not correlated."""

    def statistics(found: Any, x: Any) -> Statistic:
        values = found.double().flatten()
        count = values.numel()
        centred = values - mean
        # Numbers of the dtype are further apart than the exact ones: by its rounding on average.
        rounding = torch.finfo(found.dtype).eps / 4
        return {
            "mean": (float(values.mean()), mean, math.sqrt(variance / count) + rounding),
            "variance": (
                float(centred.square().mean()),
                variance,
                math.sqrt((fourth - variance**2) / count) + rounding,
            ),
            "product of neighbours": (
                float((centred[1:] * centred[:-1]).mean()),
                0.0,
                variance / math.sqrt(count - 1) + rounding,
            ),
        }

    return statistics


def _multinomial_statistics(found: Any, weights: Any) -> Statistic:
    """Ids are in range. The heavier half of them, and the first half, are drawn as often as their weights say."""
    share = weights.double() / weights.double().sum(1, keepdim=True)
    outside = (found < 0) | (found >= weights.shape[1])
    if outside.any():
        return {"ids out of range": (float(outside.sum()), 0.0, 0.0)}
    halves = {
        "heavier": share > share.median(1, keepdim=True).values,
        "first": (torch.arange(share.shape[1]) < share.shape[1] // 2).expand(share.shape),
    }
    statistics: Statistic = {}
    for name, half in halves.items():
        expected = (share * half).sum(1)
        deviation = float((expected * (1 - expected) / found.shape[1]).sum().sqrt()) / found.shape[0]
        drawn = float(half.gather(1, found).double().mean())
        statistics[f"share of the {name} half"] = (drawn, float(expected.mean()), deviation)
    return statistics


def of_elements(name: str, call: Callable[..., Any], statistics: Callable[..., Statistic], **more: Any) -> Operator:
    def tensor(layout: str = "contiguous", **sizes: int) -> tuple[Operand, ...]:
        return (Operand(tuple(sizes.values()), layout=layout),)

    return Operator(
        name=name,
        group="random",
        shapes=SHAPES,
        operands=tensor,
        outputs=lambda layout="", **sizes: (Operand(tuple(sizes.values())),),
        call=call,
        rule=Statistics(statistics),
        is_random=True,
        **more,
    )


def _written_once(element: int, layout: str = "", **sizes: int) -> int:
    return math.prod(sizes.values()) * element


OPERATORS: Sequence[Operator] = (
    of_elements("dropout", lambda x: torch.nn.functional.dropout(x, DROPPED), _dropout_statistics),
    of_elements("native_dropout", lambda x: torch.native_dropout(x, DROPPED, True)[0], _dropout_statistics),
    of_elements("rand", lambda x: torch.rand_like(x), _moments(0.5, 1 / 12, 1 / 80), traffic=_written_once),
    of_elements("normal", lambda x: torch.randn_like(x), _moments(0.0, 1.0, 3.0), traffic=_written_once),
    Operator(
        name="multinomial",
        group="random",
        shapes={
            "model": ({"rows": 64, "columns": 128256},),
            "odd": ({"rows": 13, "columns": 10007},),
            "tiny": ({"rows": 7, "columns": 1021},),
        },
        operands=lambda rows, columns: (Operand((rows, columns), draw="uniform"),),
        outputs=lambda rows, columns: (Operand((rows, 64), "int64"),),
        call=lambda weights: torch.multinomial(weights, 64, replacement=True),
        dtypes=("fp32",),
        rule=Statistics(_multinomial_statistics),
        is_random=True,
    ),
)
