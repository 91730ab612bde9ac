"""Many values as few points: no extreme is lost, and few values stay as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flagperf_publish.pages.timeline import MAX_POINTS, Bucket, means, on_grid, ratios

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def test_few_values_stay_as_they_are() -> None:
    assert means([1.0, 2.0], [5.0, 7.0]) == (Bucket(1.0, 5.0, 5.0, 5.0), Bucket(2.0, 7.0, 7.0, 7.0))
    assert means([], []) == ()


def test_a_bucket_has_the_mean_and_the_extremes_of_its_values_at_its_last_x() -> None:
    found = means(list(range(6)), [1.0, 3.0, 2.0, 10.0, 0.0, 5.0], num=2)
    assert found == (Bucket(2, 1.0, 2.0, 3.0), Bucket(5, 0.0, 5.0, 10.0))


def test_a_ratio_of_a_bucket_is_that_of_its_sums() -> None:
    """A long step counts more than a short one: 20 samples in 4 s are 5 a second."""
    assert ratios([1.0, 2.0], [10.0, 10.0], [1.0, 3.0], num=1) == (Bucket(2.0, 10 / 3, 5.0, 10.0),)


def test_a_value_without_a_duration_is_left_out() -> None:
    assert ratios([1.0, 2.0], [10.0, 10.0], [0.0, 2.0]) == (Bucket(2.0, 5.0, 5.0, 5.0),)


@given(st.lists(numbers, min_size=1, max_size=1000))
def test_extremes_survive_and_there_are_never_too_many_points(values: list[float]) -> None:
    found = means(list(range(len(values))), values)
    assert len(found) == min(len(values), MAX_POINTS)
    assert min(each.low for each in found) == min(values)
    assert max(each.high for each in found) == max(values)


@given(st.lists(numbers, min_size=1, max_size=300), st.integers(1, 50))
def test_a_grid_loses_nothing_either(values: list[float], num: int) -> None:
    xs = [float(index) for index in range(len(values))]
    found = on_grid(xs, values, xs[0], xs[-1], num)
    assert 1 <= len(found) <= num
    assert (min(each.low for each in found), max(each.high for each in found)) == (min(values), max(values))
    assert [each.x for each in found] == sorted(each.x for each in found)


def test_places_of_a_grid_without_a_value_are_left_out() -> None:
    found = on_grid([0.0, 1.0, 9.0], [1.0, 3.0, 5.0], 0.0, 10.0, 5)
    assert found == (Bucket(0.5, 1.0, 2.0, 3.0), Bucket(9.0, 5.0, 5.0, 5.0))
