"""One run against one: how far apart they are inside, by their steps. It says nothing about the next run.

Steps are alike: their batches are made twice as long until the means of neighbours are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from flagperf.compare.ratio import Ratio, welch, with_interval
from flagperf.metrics.autocorrelation import MeanError, effective_number, mean_of_batches


class InsideRuns(msgspec.Struct, frozen=True):
    ratio: Ratio
    num_steps: tuple[int, int]
    effective: tuple[float, float]
    """So many independent steps would say as much."""


def inside_runs(ratio: float, baseline: Sequence[float], other: Sequence[float]) -> InsideRuns | None:
    """The ratio of their speeds with an interval, by the time that each step needs for a unit of work. None if a run
    has too few steps before they are independent."""
    found = [mean_of_batches(times, _mean) for times in (baseline, other)]
    if any(each is None or each.mean <= 0 for each in found):
        return None
    own, others = (each for each in found if each is not None)
    error, degrees = welch([_relative(own), _relative(others)])
    found_ratio = with_interval(Ratio(ratio, "steps", error, degrees))
    return InsideRuns(found_ratio, (len(baseline), len(other)), (effective_number(baseline), effective_number(other)))


def _relative(found: MeanError) -> tuple[float, float]:
    return (found.error / found.mean) ** 2, found.degrees


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
