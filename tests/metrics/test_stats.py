"""Statistics: Student's distribution, batch means, values that depend on the ones before them."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from flagperf.messages import message, render
from flagperf.stats import (
    METHOD,
    batch_means,
    correlation,
    effective_number,
    mean_of_batches,
    median,
    two_sided,
    upper_tail,
)
from flagperf.stats import student_quantile as quantile

RHO, MEAN, SIGMA = 0.8, 1_000_000, 50_000
NUM_SERIES, NUM_STEPS = 1000, 600


@pytest.mark.parametrize(
    ("upper", "degrees", "t"),
    [
        (0.025, 1, 12.706),
        (0.025, 2, 4.303),
        (0.025, 3, 3.182),
        (0.025, 9, 2.262),
        (0.025, 30, 2.042),
        (0.025, 120, 1.980),
        (0.05, 5, 2.015),
        (0.005, 10, 3.169),
        (0.0005, 4, 8.610),
        (0.025, 1e7, 1.960),
    ],
)
def test_quantiles_are_those_of_the_tables(upper: float, degrees: float, t: float) -> None:
    assert quantile(upper, degrees) == pytest.approx(t, abs=5.1e-4)


def test_degrees_of_freedom_need_not_be_whole() -> None:
    assert quantile(0.025, 4) < quantile(0.025, 3.5) < quantile(0.025, 3)


@pytest.mark.parametrize(
    ("t", "degrees", "probability"),
    [(2.262, 9, 0.05), (1.0, 1, 0.5), (2.0, 60, 0.0500), (3.169, 10, 0.01), (0.0, 5, 1.0), (-2.262, 9, 0.05)],
)
def test_two_sided_probabilities(t: float, degrees: float, probability: float) -> None:
    assert two_sided(t, 1.0, degrees) == pytest.approx(probability, rel=2e-3)


def test_tails() -> None:
    assert upper_tail(1.0, 1) == pytest.approx(0.25)
    assert upper_tail(-1.0, 1) == pytest.approx(0.75)
    assert (upper_tail(math.inf, 3), upper_tail(-math.inf, 3)) == (0.0, 1.0)


def test_without_an_error_there_is_no_doubt() -> None:
    assert (two_sided(0.0, 0.0, 4), two_sided(0.1, 0.0, 4)) == (1.0, 0.0)


# --- values that depend on the ones before them ---------------------------------------------------------------------


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


@pytest.mark.full
def test_alike_neighbours_count_less() -> None:
    """AR(1): n * (1 - rho) / (1 + rho), a ninth for 0.8."""
    found = [effective_number(autoregressive(random.Random(seed), 0.8, 4000)) for seed in range(20)]
    assert median(found) == pytest.approx(4000 / 9, rel=0.15)


@pytest.mark.full
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


# --- batch means against simulated runs whose true throughput is known ----------------------------------------------


def naive(value: float, durations: list[float]) -> tuple[float, float]:
    """What treating the steps as independent would say."""
    mean = sum(durations) / len(durations)
    variance = sum((duration - mean) ** 2 for duration in durations) / (len(durations) - 1)
    relative = 1.96 * math.sqrt(variance / len(durations)) / mean
    return value * (1 - relative), value * (1 + relative)


@pytest.mark.full
def test_batch_means_cover_the_truth_where_independence_does_not() -> None:
    random_source = random.Random(20240607)
    truth, ones = 1 / MEAN, [1] * NUM_STEPS
    covered = naively = 0
    for _ in range(NUM_SERIES):
        durations = [MEAN + SIGMA * each for each in autoregressive(random_source, RHO, NUM_STEPS)]
        value = NUM_STEPS / sum(durations)
        interval = batch_means(value, ones, durations)
        low, high = naive(value, durations)
        covered += interval.low <= truth <= interval.high
        naively += low <= truth <= high
    assert 0.90 <= covered / NUM_SERIES <= 0.98
    assert naively / NUM_SERIES < 0.75


def test_interval_by_hand() -> None:
    """20 steps, 10 batches of 2. Five batches take 2 s and five 2.5 s for 10 samples: 5 and 4 samples/s, mean 4.5.

    Squared deviations 10 x 0.25 = 2.5, variance 2.5 / 9, standard error sqrt(2.5 / 9 / 10) = 1/6;
    relative half-width 2.262 / 6 / 4.5 = 0.083778.
    """
    interval = batch_means(4.0, [5] * 20, [1_000_000_000] * 10 + [1_250_000_000] * 10)
    assert interval.low == pytest.approx(4.0 * (1 - 0.0837778), abs=1e-6)
    assert interval.high == pytest.approx(4.0 * (1 + 0.0837778), abs=1e-6)
    assert interval.method == METHOD
    assert "batch means" in render(message(f"interval.{METHOD}"))


def test_batches_are_contiguous_and_use_every_step() -> None:
    """25 steps make batches of 2 and 3. The slow last step moves one batch only: 9 of 1/s, one of 3 steps in 6 s."""
    interval = batch_means(1.0, [1] * 25, [1] * 24 + [4])
    rates = [1.0] * 9 + [0.5]
    relative = 2.262 * statistics.stdev(rates) / math.sqrt(10) / statistics.fmean(rates)
    assert interval.high == pytest.approx(1 + relative)


def test_equal_steps_have_no_width() -> None:
    interval = batch_means(7.0, [3] * 30, [10] * 30)
    assert (interval.low, interval.high) == pytest.approx((7.0, 7.0))


def test_wide_interval_stops_at_zero() -> None:
    assert batch_means(1.0, [1] * 20, [1] * 18 + [1000, 1000]).low >= 0
    assert batch_means(1.0, [0] * 18 + [1, 1], [1] * 20).low == 0.0


@pytest.mark.parametrize("num_steps", [0, 1, 19])
def test_no_interval_below_two_steps_per_batch(num_steps: int) -> None:
    assert batch_means(1.0, [1] * num_steps, [1] * num_steps) is None


def test_no_interval_where_a_batch_took_no_time() -> None:
    assert batch_means(1.0, [1] * 20, [0, 0] + [1] * 18) is None
