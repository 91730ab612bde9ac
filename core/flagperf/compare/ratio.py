"""How many times one side is of the other, with a 95 % interval. The run is the unit: steps inside a run are alike.

With y = ln(value), d is the difference of the means, SE^2 = s_A^2 / n_A + s_B^2 / n_B with Welch's degrees of freedom,
and the interval is exp(d -+ t * SE); of two runs against more, the degrees are fewer. Runs that took turns on one
machine are compared pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.metrics.student import quantile

TWO_SIDED = 0.05
"""Of a 95 % interval."""

DEGREES_OF_TWO = 1.5
"""At most, of two runs against more. Two that happen to be close pass for a steady side: by Welch's own degrees, 89 %
of the intervals of 2 against 10 runs contain the truth, where the two vary four times as much; by these 93 %."""

MOST = 600.0
"""Half-width of the logarithm of a ratio: what is wider says nothing either."""

Method = Literal["welch", "paired", "steps", "none"]
"""`steps`: within one run of each side. `none`: a difference without an interval."""


class Ratio(msgspec.Struct, frozen=True):
    value: float
    """The other side over the baseline."""
    method: Method = "none"
    error: float = 0.0
    """Standard error of its logarithm."""
    degrees: float = 0.0
    """Of freedom."""
    deviation: float = 0.0
    """Standard deviation of the logarithms between runs, or of the differences of pairs."""
    num_runs: int = 1
    """Of the side that has fewer; or pairs."""
    apart: float = 0.0
    """What A against A shows, as a share: see `halves_apart`."""
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        return self.method in ("welch", "paired")

    @property
    def log(self) -> float:
        return math.log(self.value)


def ratio_of(baseline: Sequence[float], other: Sequence[float]) -> Ratio:
    """Of values above 0. Without an interval if a side has a single one."""
    ours, others = _logs(baseline), _logs(other)
    value = geometric_mean(other) / geometric_mean(baseline)
    num_runs = min(len(ours), len(others))
    if num_runs < 2:
        return Ratio(value, num_runs=num_runs)
    parts = [(_variance(each), len(each)) for each in (ours, others)]
    error, degrees = welch([(variance / count, count - 1) for variance, count in parts])
    if num_runs == 2 and len(ours) != len(others):
        degrees = min(degrees, DEGREES_OF_TWO)
    deviation = math.sqrt(sum(variance for variance, _ in parts) / 2)
    apart = max(halves_apart(ours), halves_apart(others))
    return with_interval(Ratio(value, "welch", error, degrees, deviation, num_runs, apart))


def ratio_of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Of (baseline, other), each pair from neighbouring runs."""
    differences = [math.log(other) - math.log(own) for own, other in pairs]
    value = math.exp(_mean(differences))
    if len(differences) < 2:
        return Ratio(value, num_runs=len(differences))
    variance, count = _variance(differences), len(differences)
    error, apart = math.sqrt(variance / count), halves_apart(differences)
    return with_interval(Ratio(value, "paired", error, count - 1, math.sqrt(variance), count, apart))


def welch(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """(variance of a mean, its degrees of freedom) of each side -> standard error of the difference, and its own."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0, sum(degrees for _, degrees in parts)
    return math.sqrt(total), total**2 / sum(variance**2 / degrees for variance, degrees in parts)


def with_interval(ratio: Ratio) -> Ratio:
    half = min(quantile(TWO_SIDED / 2, ratio.degrees) * ratio.error, MOST)
    low, high = (math.exp(ratio.log + sign * half) for sign in (-1, 1))
    return msgspec.structs.replace(ratio, low=low, high=high)


def geometric_mean(values: Sequence[float]) -> float:
    """What the ratio is a ratio of. Of equal values, exactly that."""
    return values[0] if min(values) == max(values) else math.exp(_mean(_logs(values)))


def halves_apart(logs: Sequence[float]) -> float:
    """How far the second half of a side's own runs is from the first, as a share; of pairs, that of their ratios. 0
    with fewer than four. What was measured twice under one name cannot tell two names apart."""
    if len(logs) < 4:
        return 0.0
    middle = len(logs) // 2
    return math.expm1(abs(_mean(logs[middle:]) - _mean(logs[:middle])))


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
