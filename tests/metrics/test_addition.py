"""Numbers are recomputed years later, on another Python: the last digit too is the same."""

from __future__ import annotations

import statistics
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagperf.metrics.addition import added, deviation

SAMPLES = st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=20)


def test_a_sum_is_that_of_additions_one_by_one() -> None:
    assert added([0.1] * 10) == 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 + 0.1 == 0.9999999999999999
    assert added([]) == 0


def test_a_deviation_is_rounded_once() -> None:
    assert deviation([1.0, 2.0, 3.0]) == 1.0
    assert deviation([7.0, 7.0]) == 0.0
    assert deviation([0.1, 0.2, 0.4]) == 0.15275252316519466


@pytest.mark.skipif(sys.version_info < (3, 11), reason="statistics.stdev of Python 3.10 rounds twice")
@given(SAMPLES)
def test_a_deviation_is_that_of_the_standard_library(values: list[float]) -> None:
    assert deviation(values) == statistics.stdev(values)
