"""Medians, and values that stand out, with numbers that a person can check."""

import pytest

from flagperf.stats import median, standing_out


def test_the_median_is_in_the_middle():
    assert median([3, 1, 2]) == 2
    assert median(iter([4.0, 1.0, 2.0, 3.0])) == 2.5


@pytest.mark.parametrize(
    ("values", "least", "found"),
    [
        ([100, 100, 100, 104], 3, [3]),  # equal but for one: `least` decides
        ([100, 100, 100, 103], 3, []),
        ([100, 100, 100, 96], 3, []),  # below the median is better
        # Median 100, deviations 2, 1, 1, 1, 1 and the last: their median is 1, scaled 1.4826, three of them 4.4478.
        ([98, 99, 101, 99, 101, 104.4], 3, []),
        ([98, 99, 101, 99, 101, 104.5], 3, [5]),
        ([1, 1, 1, 9, 1, 8], 0.03, [3, 5]),  # two bad ones do not hide each other
        ([100, 150], 3, []),  # which of two is the bad one cannot be said
        ([100, 100, 150, 150], 3, []),
        ([0.0, 0.0, 0.0], 0.0, []),
    ],
)
def test_a_value_stands_out_by_both_margins(values, least, found):
    assert standing_out(values, least) == found
