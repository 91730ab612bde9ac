"""The statistics of the benchmarks, against answers that are known."""

import random

import pytest
from bench.measure import Figure, MedianInterval, interleaved, median_interval, throughput_ratio


def test_median_interval_by_the_table_of_order_statistics():
    """Of 30 values the 10th and the 21st, of 40 the 14th and the 27th: the tables of the sign test at 95 %."""
    of_30, of_40 = median_interval(list(range(1, 31))), median_interval(list(range(1, 41)))
    assert (of_30.low, of_30.median, of_30.high) == (10, 15.5, 21)
    assert (of_40.low, of_40.median, of_40.high) == (14, 20.5, 27)


def test_median_interval_of_the_fewest_values_is_their_range():
    """2 / 2**6 is the first that is below 5 %."""
    interval = median_interval([3, 1, 2, 6, 5, 4])
    assert (interval.low, interval.median, interval.high) == (1, 3.5, 6)


def test_too_few_values_give_no_interval():
    with pytest.raises(ValueError, match="5 values give no interval of 95%"):
        median_interval([1, 2, 3, 4, 5])


@pytest.mark.parametrize("num_values", [30, 40])
def test_median_interval_covers_the_true_median_of_skewed_values(num_values):
    """Exponential values of mean 1 have the median 0.6931; times on a busy machine are skewed like that."""
    source = random.Random(7)
    rounds, truth = 4000, 0.693147
    intervals = [median_interval([source.expovariate(1) for _ in range(num_values)]) for _ in range(rounds)]
    covered = sum(interval.low <= truth <= interval.high for interval in intervals) / rounds
    assert 0.945 <= covered <= 0.98


def test_outliers_do_not_move_the_interval():
    calm = median_interval([1.0] * 30)
    disturbed = median_interval([1.0] * 24 + [100.0] * 6)
    assert (disturbed.low, disturbed.high) == (calm.low, calm.high)


def test_interleaved_turns_around_every_round():
    order = []
    results = interleaved({"a": lambda: order.append("a") or 1, "b": lambda: order.append("b") or 2}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert results == {"a": [1, 1, 1], "b": [2, 2, 2]}


@pytest.mark.parametrize(("passed", "verdict"), [(True, "pass"), (False, "miss"), (None, "open")])
def test_verdict(passed, verdict):
    assert Figure("f", "1", "<= 2", passed, "by hand").verdict == verdict


def test_a_figure_without_a_target_has_no_verdict():
    assert Figure("f", "1", "", None, "by hand").verdict == "-"


@pytest.mark.parametrize(("target", "reached"), [(0.9, True), (1.0, True), (1.05, None), (1.2, False)])
def test_the_median_decides_and_a_wide_interval_does_not(target, reached):
    assert MedianInterval(0.8, 1.0, 1.1).reaches(target) is reached


def test_throughput_is_the_inverse_of_the_seconds_of_equal_work():
    ratio = throughput_ratio([1.0, 2.0, 3.0, 1.0, 2.0, 3.0], [2.0, 4.0, 6.0, 2.0, 4.0, 6.0])
    assert (ratio.low, ratio.median, ratio.high) == (0.5, 0.5, 0.5)
