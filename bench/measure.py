"""Interleaving and intervals. Times of one machine at two moments do not compare; those of one round do."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Figure(msgspec.Struct, frozen=True):
    name: str
    value: str
    target: str
    """Empty for a figure that only stands beside another one."""
    passed: bool | None
    """None where nothing was to be reached, or where the measurement does not decide it."""
    how: str
    details: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        if self.passed is None:
            return "open" if self.target else "-"
        return "pass" if self.passed else "miss"


class NotMeasured(Exception):
    """Why a program could not measure at all."""


class MedianInterval(msgspec.Struct, frozen=True):
    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def reaches(self, target: float) -> bool | None:
        """By the median. None where it is below and the interval is not: more rounds, or a calmer machine, decide."""
        if self.median >= target:
            return True
        return None if self.high >= target else False


def interleaved(programs: Mapping[str, Callable[[], T]], num_rounds: int) -> dict[str, list[T]]:
    """Every program once per round; the order turns around from round to round, so that no place is always first."""
    results: dict[str, list[T]] = {name: [] for name in programs}
    for index in range(num_rounds):
        for name in list(programs)[:: 1 if index % 2 == 0 else -1]:
            results[name].append(programs[name]())
    return results


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_interval(values: Sequence[float], confidence: float = 0.95) -> MedianInterval:
    """By order statistics: no assumption about the distribution but that the values are independent."""
    outside = _values_outside(len(values), confidence)
    ordered = sorted(values)
    return MedianInterval(ordered[outside], statistics.median(ordered), ordered[-1 - outside])


def throughput_ratio(base_seconds: Sequence[float], seconds: Sequence[float]) -> MedianInterval:
    """Throughput over that of the base, from the seconds of equal work in each round."""
    return median_interval([base / own for base, own in zip(base_seconds, seconds, strict=True)])


def _values_outside(num_values: int, confidence: float) -> int:
    """How many values may be left out at each end.

    The median lies below the smallest value but k if at most k of n fair coins fall its way, and likewise above.
    """
    allowed = (1 - confidence) / 2 * 2**num_values
    outside, tail = 0, 1
    if tail > allowed:
        raise ValueError(f"{num_values} values give no interval of {confidence:.0%} for their median")
    while (tail := tail + math.comb(num_values, outside + 1)) <= allowed:
        outside += 1
    return outside
