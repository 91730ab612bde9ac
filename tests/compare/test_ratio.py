"""Ratios that a person can check by hand, of groups of runs and of the steps of one run against one."""

from __future__ import annotations

import math
import random

import pytest

from flagperf.compare.ratio import geometric_mean, halves_apart, ratio_of, ratio_of_pairs, welch
from flagperf.compare.sides import inside_runs


def exp(*logs: float) -> list[float]:
    return [math.exp(log) for log in logs]


def test_two_runs_of_each_by_hand() -> None:
    """Logarithms 0, 0.02 and 0.10, 0.12: d = 0.10, both variances 0.0002, SE = sqrt(0.0002) = 0.0141421,
    degrees 2, t = 4.302653, half-width 0.0608487."""
    found = ratio_of(exp(0, 0.02), exp(0.10, 0.12))
    assert found.value == pytest.approx(math.exp(0.10))
    assert (found.error, found.degrees) == pytest.approx((0.0141421, 2.0), abs=1e-6)
    assert (found.low, found.high) == pytest.approx((math.exp(0.10 - 0.0608487), math.exp(0.10 + 0.0608487)), abs=1e-6)
    assert (found.method, found.num_runs) == ("welch", 2)
    assert found.deviation == pytest.approx(math.sqrt(0.0002))


def test_degrees_are_welchs() -> None:
    """Variances of the means 1 and 4 with 4 and 2 degrees: 25 / (1/4 + 16/2) = 3.0303."""
    assert welch([(1.0, 4), (4.0, 2)]) == pytest.approx((math.sqrt(5), 3.030303))


def test_pairs_cancel_what_slows_both() -> None:
    """Runs drift by 50 %, but B is 1.1 times A in each pair but for 1 %."""
    pairs = [(100.0, 110.0), (120.0, 132.0), (150.0, 166.65)]
    found = ratio_of_pairs(pairs)
    assert found.method == "paired" and found.degrees == 2
    assert found.low is not None and found.high is not None
    assert 1.08 < found.low < 1.1 < found.high < 1.13
    unpaired = ratio_of([own for own, _ in pairs], [other for _, other in pairs])
    assert unpaired.low is not None and unpaired.low < 0.8


def test_one_run_has_no_interval() -> None:
    found = ratio_of([100.0], [90.0, 91.0, 92.0])
    assert (found.low, found.high, found.method, found.has_interval) == (None, None, "none", False)
    assert not ratio_of_pairs([(1.0, 2.0)]).has_interval


def test_equal_runs_have_no_width() -> None:
    found = ratio_of([5.0, 5.0], [6.0, 6.0])
    assert (found.low, found.value, found.high) == pytest.approx((1.2, 1.2, 1.2))


def test_the_printed_values_have_the_printed_ratio() -> None:
    one, other = [90.0, 110.0, 100.0], [120.0, 100.0]
    assert ratio_of(one, other).value == pytest.approx(geometric_mean(other) / geometric_mean(one))
    assert geometric_mean([123.0]) == 123.0


def test_what_a_against_a_shows() -> None:
    """Halves 0, 0.02 and 0.05, 0.07: 0.05 apart."""
    assert halves_apart([0.0, 0.02, 0.05, 0.07]) == pytest.approx(math.expm1(0.05))
    assert halves_apart([0.05, 0.07, 0.0, 0.02]) == pytest.approx(math.expm1(0.05))
    assert halves_apart([0.0, 0.02, 0.5]) == 0.0
    assert ratio_of(exp(0, 0, 0.03, 0.03), exp(0, 0, 0)).apart == pytest.approx(math.expm1(0.03))


def test_the_ratio_inside_runs_is_that_of_the_metric_and_the_width_that_of_the_steps() -> None:
    source = random.Random(5)
    one, other = ([100 * (1 + source.gauss(0, 0.05)) for _ in range(400)] for _ in range(2))
    found = inside_runs(1.02, one, other)
    assert found is not None and found.ratio.value == 1.02
    half = 1.97 * 0.05 * (2 / 400) ** 0.5
    assert found.ratio.high == pytest.approx(1.02 * (1 + half), rel=2e-3)
    assert found.num_steps == (400, 400) and min(found.effective) > 300
    assert not found.ratio.has_interval, "steps give no verdict"


def test_too_few_steps_have_no_ratio_inside_runs() -> None:
    assert inside_runs(1.0, [1.0] * 9, [1.0] * 50) is None
    assert inside_runs(1.0, [float(n) for n in range(1, 90)], [1.0] * 50) is None
