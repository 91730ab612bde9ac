"""Batch means against simulated runs whose true throughput is known."""

import math
import random
import statistics

import pytest

from flagperf.messages import message, render
from flagperf.stats import METHOD, batch_means

RHO, MEAN, SIGMA = 0.8, 1_000_000, 50_000
NUM_SERIES, NUM_STEPS = 1000, 600


def durations_ns(random_source):
    """AR(1) about MEAN: each step remembers 0.8 of the deviation of the one before."""
    noise = math.sqrt(1 - RHO * RHO) * SIGMA
    deviation = random_source.gauss(0, SIGMA)
    for _ in range(NUM_STEPS):
        deviation = RHO * deviation + random_source.gauss(0, noise)
        yield MEAN + deviation


def naive(value, durations):
    """What treating the steps as independent would say."""
    mean = sum(durations) / len(durations)
    variance = sum((duration - mean) ** 2 for duration in durations) / (len(durations) - 1)
    relative = 1.96 * math.sqrt(variance / len(durations)) / mean
    return value * (1 - relative), value * (1 + relative)


def test_batch_means_cover_the_truth_where_independence_does_not():
    random_source = random.Random(20240607)
    truth, ones = 1 / MEAN, [1] * NUM_STEPS
    covered = naively = 0
    for _ in range(NUM_SERIES):
        durations = list(durations_ns(random_source))
        value = NUM_STEPS / sum(durations)
        interval = batch_means(value, ones, durations)
        low, high = naive(value, durations)
        covered += interval.low <= truth <= interval.high
        naively += low <= truth <= high
    assert 0.90 <= covered / NUM_SERIES <= 0.98
    assert naively / NUM_SERIES < 0.75


def test_interval_by_hand():
    """20 steps, 10 batches of 2. Five batches take 2 s and five 2.5 s for 10 samples: 5 and 4 samples/s, mean 4.5.

    Squared deviations 10 x 0.25 = 2.5, variance 2.5 / 9, standard error sqrt(2.5 / 9 / 10) = 1/6;
    relative half-width 2.262 / 6 / 4.5 = 0.083778.
    """
    interval = batch_means(4.0, [5] * 20, [1_000_000_000] * 10 + [1_250_000_000] * 10)
    assert interval.low == pytest.approx(4.0 * (1 - 0.0837778), abs=1e-6)
    assert interval.high == pytest.approx(4.0 * (1 + 0.0837778), abs=1e-6)
    assert interval.method == METHOD
    assert "batch means" in render(message(f"interval.{METHOD}"))


def test_batches_are_contiguous_and_use_every_step():
    """25 steps make batches of 2 and 3. The slow last step moves one batch only: 9 of 1/s, one of 3 steps in 6 s."""
    interval = batch_means(1.0, [1] * 25, [1] * 24 + [4])
    rates = [1.0] * 9 + [0.5]
    relative = 2.262 * statistics.stdev(rates) / math.sqrt(10) / statistics.fmean(rates)
    assert interval.high == pytest.approx(1 + relative)


def test_equal_steps_have_no_width():
    interval = batch_means(7.0, [3] * 30, [10] * 30)
    assert (interval.low, interval.high) == pytest.approx((7.0, 7.0))


def test_wide_interval_stops_at_zero():
    assert batch_means(1.0, [1] * 20, [1] * 18 + [1000, 1000]).low >= 0
    assert batch_means(1.0, [0] * 18 + [1, 1], [1] * 20).low == 0.0


@pytest.mark.parametrize("num_steps", [0, 1, 19])
def test_no_interval_below_two_steps_per_batch(num_steps):
    assert batch_means(1.0, [1] * num_steps, [1] * num_steps) is None


def test_no_interval_where_a_batch_took_no_time():
    assert batch_means(1.0, [1] * 20, [0, 0] + [1] * 18) is None
