"""Sums and deviations that are the same on every Python, so that a recorded number can be recomputed anywhere.

`sum` of floats carries the rounding error along since Python 3.12, and `statistics.stdev` rounds twice before 3.11. A
run recorded with one and verified with another would differ in the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def added(values: Iterable[float]) -> float:
    """One after the other, in their order."""
    total = 0.0
    for value in values:
        total += value
    return total


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample: exact up to the one rounding of the result."""
    import decimal  # lazy, both: expensive to import, and `cases list` imports this module
    import fractions

    exact = [fractions.Fraction(value) for value in values]
    zero = fractions.Fraction()
    mean: fractions.Fraction = sum(exact, zero) / len(exact)
    squares = [(value - mean) * (value - mean) for value in exact]
    variance: fractions.Fraction = sum(squares, zero) / (len(exact) - 1)
    digits = decimal.Context(prec=60)
    quotient = digits.divide(decimal.Decimal(variance.numerator), decimal.Decimal(variance.denominator))
    return float(digits.sqrt(quotient))
