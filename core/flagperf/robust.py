"""Robust statistics over equal parts of a system, such as its cards: a few bad ones do not hide themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SCALE = 1.4826
"""Median absolute deviation x this = standard deviation, for a normal distribution."""

LIMIT = 3.0
"""Scaled median absolute deviations."""


def median(values: Iterable[float]) -> float:
    """Between the two in the middle, if there are two. Needs a value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between the two neighbours. Needs a value."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def standing_out(values: Sequence[float], least: float) -> list[int]:
    """Indices of the values that are above the median by more than `least` and by more than LIMIT scaled median
    absolute deviations. `least` matters where most values are equal, or nearly so."""
    middle = median(values)
    margin = max(least, LIMIT * SCALE * median(abs(value - middle) for value in values))
    return [index for index, value in enumerate(values) if value - middle > margin]
