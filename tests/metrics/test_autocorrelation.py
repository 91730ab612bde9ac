"""Values that depend on the ones before them."""

from __future__ import annotations

import math
import random

import pytest

from flagperf.stats import correlation, effective_number, mean_of_batches, median


def autoregressive(source: random.Random, rho: float, count: int) -> list[float]:
    """Mean 0, standard deviation 1."""
    value, found = source.gauss(0, 1), []
    for _ in range(count):
        value = rho * value + math.sqrt(1 - rho * rho) * source.gauss(0, 1)
        found.append(value)
    return found


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def test_correlation_by_hand() -> None:
    """1, -1, 1, -1: neighbours are opposite, (-1 -1 -1) / 4; those two apart are equal, (1 + 1) / 4."""
    assert correlation([1.0, -1.0, 1.0, -1.0]) == -0.75
    assert correlation([1.0, -1.0, 1.0, -1.0], 2) == 0.5
    assert correlation([3.0, 3.0, 3.0]) == 0.0


def test_independent_values_count_in_full() -> None:
    values = autoregressive(random.Random(1), 0.0, 2000)
    assert effective_number(values) == pytest.approx(2000, rel=0.1)


def test_alike_neighbours_count_less() -> None:
    """AR(1): n * (1 - rho) / (1 + rho), a ninth for 0.8."""
    found = [effective_number(autoregressive(random.Random(seed), 0.8, 4000)) for seed in range(20)]
    assert median(found) == pytest.approx(4000 / 9, rel=0.15)


def test_batches_grow_until_their_means_are_independent() -> None:
    covered = found = 0
    for seed in range(300):
        batches = mean_of_batches(autoregressive(random.Random(seed), 0.8, 1000), mean)
        if batches is not None:
            found += 1
            covered += abs(batches.mean) < batches.half
            assert batches.degrees < 500
    assert found > 280
    assert 0.87 <= covered / found <= 0.98


def test_too_few_independent_batches_are_none() -> None:
    assert mean_of_batches(list(range(100)), mean) is None
    assert mean_of_batches([1.0] * 9, mean) is None
