"""Interval, exact sums, median, quantile, Student's t (once), batch intervals, Holm."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

# Robust statistics over equal parts of a system, such as its cards: a few bad ones do not hide themselves.


SCALE = 1.4826
"""Median absolute deviation x this = standard deviation, for a normal distribution."""

LIMIT = 3.0
"""Scaled median absolute deviations."""


def median(values: Iterable[float]) -> float:
    """Return the middle value, or the mean of the two in the middle. Needs a value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Interpolate linearly between the two neighbours. Needs a value."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def standing_out(values: Sequence[float], least: float) -> list[int]:
    """Indices of the values that are above the median by more than `least` and by more than LIMIT scaled median
    absolute deviations. `least` matters where most values are equal, or nearly so."""
    middle = median(values)
    margin = max(least, LIMIT * SCALE * median(abs(value - middle) for value in values))
    return [index for index, value in enumerate(values) if value - middle > margin]


# Student's distribution, which the standard library does not have. Degrees of freedom need not be whole.


def two_sided(difference: float, error: float, degrees: float) -> float:
    """Return the probability of such a difference, or a larger one, between equals."""
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return min(1.0, 2 * upper_tail(abs(difference) / error, degrees))


def upper_tail(t: float, degrees: float) -> float:
    """Return the probability of a value above `t`."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    beyond = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return beyond if t >= 0 else 1 - beyond


@functools.cache
def student_quantile(upper: float, degrees: float) -> float:
    """Return the value that is exceeded with the probability `upper`, which is below a half."""
    low, high = 0.0, 1.0
    while upper_tail(high, degrees) > upper:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, degrees) > upper else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction 1 + t1 / (1 + t2 / (1 + ...))."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(a * math.log(x) + b * math.log(1 - x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    fraction, numerator, denominator = 1.0, 1.0, 0.0
    for number in range(1, 401):
        k = number // 2
        if number % 2:
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        else:
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        denominator = 1 / (1 + term * denominator)
        numerator = 1 + term / numerator
        fraction *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-14:
            break
    return front / fraction if fraction else 0.0


# Confidence interval of a throughput by batch means: single steps are correlated, long batches are nearly
# independent.
#
# In a simulation with AR(1) noise of correlation 0.8 and 600 steps, 94 % of the nominal 95 % intervals contain the
# true value. Intervals that treat steps as independent contain it in 49 % of cases.


NUM_BATCHES = 10

STUDENT_T = 2.262
"""97.5 % quantile for NUM_BATCHES - 1 degrees of freedom."""

METHOD = "batch_means_95"


def batch_means(value: float, counts: Sequence[int], durations_ns: Sequence[int]) -> Interval | None:
    """Return the interval around `value`, with the relative half-width of the batch throughputs. Return None with fewer
    than two steps per batch."""
    if len(counts) < 2 * NUM_BATCHES:
        return None
    bounds = [index * len(counts) // NUM_BATCHES for index in range(NUM_BATCHES + 1)]
    batches = [slice(low, high) for low, high in pairwise(bounds)]
    totals_ns = [sum(durations_ns[batch]) for batch in batches]
    if min(totals_ns) <= 0:
        return None
    rates = [sum(counts[batch]) / total_ns for batch, total_ns in zip(batches, totals_ns, strict=True)]
    mean = math.fsum(rates) / NUM_BATCHES
    deviation = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / (NUM_BATCHES - 1))
    relative = STUDENT_T * deviation / math.sqrt(NUM_BATCHES) / mean
    return Interval(max(0.0, value * (1 - relative)), value * (1 + relative), METHOD)


# Confidence interval of a median of samples that depend on each other, by batches.
#
# Samples in a row are alike: clocks, heat and other work change slowly. So the interval is that of the medians of
# batches, which are made twice as long until neighbours among them are no more alike than chance allows. With fewer
# than ten batches there is no interval.


MIN_BATCHES = 10

MEDIANS_METHOD = "batch_medians_95"

CHANCE = 1.96
"""Divided by the square root of the number of batches: the 95 % limit for the correlation of independent neighbours."""

STUDENT_T_BY_DEGREES = {9: 2.262, 10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98}
"""97.5 % quantiles by degrees of freedom; the next lower one is used."""

Reduce = Callable[[Sequence[float]], float]
"""What a batch is reduced to."""


class MeanError(msgspec.Struct, frozen=True):
    """The mean of independent batches, and its standard error."""

    mean: float
    error: float
    degrees: int
    """Degrees of freedom."""

    @property
    def half(self) -> float:
        """Return half the width of its 95 % interval."""
        return STUDENT_T_BY_DEGREES[max(known for known in STUDENT_T_BY_DEGREES if known <= self.degrees)] * self.error


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the interval of order statistics of the medians of batches, which a few slow samples do not move. If
    samples are of two kinds, the median of all can lie beside those of batches: the interval then reaches to it."""
    found = _independent_batches(values, median)
    if found is None:
        return None
    ordered = sorted(found)
    place = max(0, math.floor((len(ordered) - CHANCE * math.sqrt(len(ordered))) / 2))
    middle = median(values)
    return Interval(min(ordered[place], middle), max(ordered[-1 - place], middle), MEDIANS_METHOD)


def mean_of_batches(values: Sequence[float], reduce: Reduce = median) -> MeanError | None:
    """Return the mean of what batches are reduced to. Return None if they are too few before they are independent."""
    found = _independent_batches(values, reduce)
    if found is None:
        return None
    mean = math.fsum(found) / len(found)
    variance = math.fsum((value - mean) ** 2 for value in found) / (len(found) - 1)
    return MeanError(mean, math.sqrt(variance / len(found)), len(found) - 1)


def effective_number(values: Sequence[float]) -> float:
    """Return how many independent values would say as much: n / (1 + 2 * sum of the correlations at lags 1, 2, ...),
    summed up to the first that chance explains."""
    count, total, limit = len(values), 0.0, CHANCE / math.sqrt(max(1, len(values)))
    for lag in range(1, count // 2):
        found = correlation(values, lag)
        if found < limit:
            break
        total += found
    return count / (1 + 2 * total)


def _independent_batches(values: Sequence[float], reduce: Reduce) -> list[float] | None:
    """Return the values of the shortest batches whose neighbours are independent."""
    size = 1
    while len(values) // size >= MIN_BATCHES:
        count = len(values) // size
        found = [reduce(values[index * size : (index + 1) * size]) for index in range(count)]
        if abs(correlation(found)) < CHANCE / math.sqrt(count):
            return found
        size *= 2
    return None


def correlation(values: Sequence[float], lag: int = 1) -> float:
    """Return the correlation of values that are `lag` apart. 0 if all are equal."""
    mean = math.fsum(values) / len(values)
    total = math.fsum((value - mean) ** 2 for value in values)
    products = ((one - mean) * (other - mean) for one, other in zip(values, values[lag:], strict=False))
    return math.fsum(products) / total if total else 0.0


# Metric: a value with its inputs, marks and confidence interval, or the reason why it is missing.


class Interval(msgspec.Struct, frozen=True):
    low: float
    high: float
    method: str
    """A code in table [interval] of the message catalogue."""
