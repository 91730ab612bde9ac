"""Confidence interval of a median of samples that depend on each other, by batches.

Samples in a row are alike: clocks, heat and other work change slowly. So the interval is that of the medians of
batches, which are made twice as long until neighbours among them are no more alike than chance allows. With fewer than
ten batches there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from flagperf.metrics.metric import Interval
from flagperf.robust import median

MIN_BATCHES = 10
METHOD = "batch_medians_95"
CHANCE = 1.96
"""Over the square root of the number of batches: 95 % limit for the correlation of independent neighbours."""

STUDENT_T = {9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98}
"""97.5 % quantiles by degrees of freedom; the next lower one is used."""

Reduce = Callable[[Sequence[float]], float]
"""What a batch is reduced to."""


class MeanError(msgspec.Struct, frozen=True):
    """The mean of independent batches, and its standard error."""

    mean: float
    error: float
    degrees: int
    """Of freedom."""

    @property
    def half(self) -> float:
        """Half the width of its 95 % interval."""
        return STUDENT_T[max(known for known in STUDENT_T if known <= self.degrees)] * self.error


def median_interval(values: Sequence[float]) -> Interval | None:
    """By order statistics of the medians of batches, which a few slow samples do not move. Where samples are of two
    kinds, the median of all can lie beside those of batches: the interval then reaches to it."""
    found = _independent_batches(values, median)
    if found is None:
        return None
    ordered = sorted(found)
    place = max(0, math.floor((len(ordered) - CHANCE * math.sqrt(len(ordered))) / 2))
    middle = median(values)
    return Interval(min(ordered[place], middle), max(ordered[-1 - place], middle), METHOD)


def mean_of_batches(values: Sequence[float], reduce: Reduce = median) -> MeanError | None:
    """Of what batches are reduced to. None if they are too few before they are independent."""
    found = _independent_batches(values, reduce)
    if found is None:
        return None
    mean = math.fsum(found) / len(found)
    variance = math.fsum((value - mean) ** 2 for value in found) / (len(found) - 1)
    return MeanError(mean, math.sqrt(variance / len(found)), len(found) - 1)


def effective_number(values: Sequence[float]) -> float:
    """How many independent values would say as much: n / (1 + 2 * sum of the correlations at lags 1, 2, ...), summed
    up to the first that chance explains."""
    count, total, limit = len(values), 0.0, CHANCE / math.sqrt(max(1, len(values)))
    for lag in range(1, count // 2):
        found = correlation(values, lag)
        if found < limit:
            break
        total += found
    return count / (1 + 2 * total)


def _independent_batches(values: Sequence[float], reduce: Reduce) -> list[float] | None:
    """The first, with the shortest batches, whose neighbours are independent."""
    size = 1
    while len(values) // size >= MIN_BATCHES:
        count = len(values) // size
        found = [reduce(values[index * size : (index + 1) * size]) for index in range(count)]
        if abs(correlation(found)) < CHANCE / math.sqrt(count):
            return found
        size *= 2
    return None


def correlation(values: Sequence[float], lag: int = 1) -> float:
    """Of values that are `lag` apart. 0 if all are equal."""
    mean = math.fsum(values) / len(values)
    total = math.fsum((value - mean) ** 2 for value in values)
    products = ((one - mean) * (other - mean) for one, other in zip(values, values[lag:], strict=False))
    return math.fsum(products) / total if total else 0.0
