"""Confidence interval of a throughput by batch means: single steps are correlated, long batches are nearly independent.

In a simulation with AR(1) noise of correlation 0.8 and 600 steps, 94 % of the nominal 95 % intervals contain the true
value. Intervals that treat steps as independent contain it in 49 % of cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from flagperf.metrics.metric import Interval

NUM_BATCHES = 10
STUDENT_T = 2.262
"""97.5 % quantile for NUM_BATCHES - 1 degrees of freedom."""

METHOD = "batch_means_95"


def batch_means(value: float, counts: Sequence[int], durations_ns: Sequence[int]) -> Interval | None:
    """The interval around `value`, with the relative half-width of the batch throughputs. None with fewer than two
    steps per batch."""
    if len(counts) < 2 * NUM_BATCHES:
        return None
    batches = _batches(len(counts))
    totals_ns = [sum(durations_ns[batch]) for batch in batches]
    if min(totals_ns) <= 0:
        return None
    rates = [sum(counts[batch]) / total_ns for batch, total_ns in zip(batches, totals_ns, strict=True)]
    mean = math.fsum(rates) / NUM_BATCHES
    deviation = math.sqrt(math.fsum((rate - mean) ** 2 for rate in rates) / (NUM_BATCHES - 1))
    relative = STUDENT_T * deviation / math.sqrt(NUM_BATCHES) / mean
    return Interval(max(0.0, value * (1 - relative)), value * (1 + relative), METHOD)


def _batches(num_steps: int) -> list[slice]:
    bounds = [index * num_steps // NUM_BATCHES for index in range(NUM_BATCHES + 1)]
    return [slice(low, high) for low, high in pairwise(bounds)]
