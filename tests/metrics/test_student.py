"""Student's distribution against printed tables."""

from __future__ import annotations

import math

import pytest

from flagperf.stats import student_quantile as quantile
from flagperf.stats import two_sided, upper_tail


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
