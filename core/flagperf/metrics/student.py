"""Student's distribution, which the standard library does not have. Degrees of freedom need not be whole."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator


def two_sided(difference: float, error: float, degrees: float) -> float:
    """Probability of such a difference, or a larger one, between equals."""
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return min(1.0, 2 * upper_tail(abs(difference) / error, degrees))


def upper_tail(t: float, degrees: float) -> float:
    """Probability of a value above `t`."""
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    beyond = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return beyond if t >= 0 else 1 - beyond


@functools.cache
def quantile(upper: float, degrees: float) -> float:
    """The value that is exceeded with the probability `upper`, which is below a half."""
    low, high = 0.0, 1.0
    while upper_tail(high, degrees) > upper:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, degrees) > upper else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised, by its continued fraction."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = math.exp(a * math.log(x) + b * math.log(1 - x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    fraction, numerator, denominator = 1.0, 1.0, 0.0
    for term in _terms(a, b, x):
        denominator = 1 / (1 + term * denominator)
        numerator = 1 + term / numerator
        fraction *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-14:
            break
    return front / fraction if fraction else 0.0


def _terms(a: float, b: float, x: float) -> Iterator[float]:
    """Of the continued fraction 1 + t1 / (1 + t2 / (1 + ...))."""
    for m in range(200):
        yield -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        k = m + 1
        yield k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
