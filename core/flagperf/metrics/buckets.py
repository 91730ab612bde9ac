"""Many values as few points: each point has the middle of its values and their extremes, so that no spike is lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import truediv

import msgspec

MAX_POINTS = 120
"""More cannot be told apart on a chart."""


class Bucket(msgspec.Struct, frozen=True):
    x: float
    low: float
    middle: float
    high: float


Buckets = tuple[Bucket, ...]


def ratios(xs: Sequence[float], amounts: Sequence[float], durations: Sequence[float], num: int = MAX_POINTS) -> Buckets:
    """Amount by duration: of a bucket the ratio of the sums, and the extremes of single ratios. `x` is that of the last
    value of a bucket. Values without a duration are left out."""
    if min(durations, default=1) <= 0:
        kept = [index for index, duration in enumerate(durations) if duration > 0]
        xs, amounts, durations = ([column[index] for index in kept] for column in (xs, amounts, durations))
    single = list(map(truediv, amounts, durations))
    return tuple(
        Bucket(xs[part.stop - 1], min(single[part]), sum(amounts[part]) / sum(durations[part]), max(single[part]))
        for part in _parts(len(single), num)
    )


def means(xs: Sequence[float], ys: Sequence[float], num: int = MAX_POINTS) -> Buckets:
    """Consecutive values, the same number in each bucket. `x` is that of the last value of a bucket."""
    return ratios(xs, ys, [1.0] * len(ys), num)


def on_grid(xs: Sequence[float], ys: Sequence[float], low: float, high: float, num: int) -> Buckets:
    """On `num` even places from `low` to `high`, so that several curves can be put together; places without a value are
    left out. `xs` increase."""
    edges = [low + (high - low) * place / num for place in range(1, num)]
    ends = [*(bisect_left(xs, edge) for edge in edges), len(xs)]
    places = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False) if begin < end]
    return tuple(_cell(xs[place], ys[place]) for place in places)


def _cell(xs: Sequence[float], ys: Sequence[float]) -> Bucket:
    return Bucket((xs[0] + xs[-1]) / 2, min(ys), sum(ys) / len(ys), max(ys))


def _parts(count: int, num: int) -> list[slice]:
    """At most `num` slices of nearly equal length."""
    num = min(count, num)
    return [slice(index * count // num, (index + 1) * count // num) for index in range(num)]
