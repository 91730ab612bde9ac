"""What an interval allows to say: above, below or within the margin, or nothing yet.

Above if the lower limit of the interval is above 1 + margin, below if the upper one is below 1 - margin, within if all
of it is between. If several sides or rows are compared with one baseline, that is as many chances of a wrong verdict:
a verdict then also needs a probability that is small enough after Holm's correction. For a single comparison that
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.compare.ratio import TWO_SIDED, Ratio
from flagperf.metrics.speedup import holm
from flagperf.metrics.student import quantile, upper_tail

MARGIN = 0.01
"""A difference below 1 % is none."""

MOST_SAME = 0.1
"""What differs from itself by more than 10 % is not called the same as anything."""

MOST_RUNS = 1000
"""More repeats than anybody would make."""

Place = Literal["above", "below", "within", "undecided"]


class Verdict(msgspec.Struct, frozen=True):
    place: Place
    margin: float
    p: float
    """Of the likeliest place, two-sided: below 0.05 where the interval alone decides."""
    corrected_p: float
    """For the number of comparisons."""
    runs_needed: int | None = None
    """Of each side, or pairs, to decide, if undecided. None if that are more than MOST_RUNS."""


def judge(ratios: Sequence[Ratio], margins: Sequence[float]) -> list[Verdict]:
    """Verdicts that are read together. Every ratio has an interval."""
    places = [place_of(ratio, margin) for ratio, margin in zip(ratios, margins, strict=True)]
    probabilities = [probability(ratio, margin) for ratio, margin in zip(ratios, margins, strict=True)]
    verdicts = []
    found = zip(ratios, margins, places, probabilities, holm(probabilities), strict=True)
    for ratio, margin, place, p, corrected in found:
        decided: Place = place if corrected < TWO_SIDED else "undecided"
        needed = runs_needed(ratio, margin, len(ratios)) if decided == "undecided" else None
        verdicts.append(Verdict(decided, margin, p, corrected, needed))
    return verdicts


def place_of(ratio: Ratio, margin: float) -> Place:
    assert ratio.low is not None and ratio.high is not None
    if ratio.low > 1 + margin:
        return "above"
    if ratio.high < 1 - margin:
        return "below"
    same = min(margin, MOST_SAME)
    return "within" if 1 - same < ratio.low and ratio.high < 1 + same else "undecided"


def probability(ratio: Ratio, margin: float) -> float:
    """Two-sided, of the best supported of the three places: below 0.05 exactly if the interval decides."""
    return min(1.0, 2 * upper_tail(_most(ratio, margin), ratio.degrees))


def _most(ratio: Ratio, margin: float) -> float:
    lowest, same = (math.log1p(-margin) if margin < 1 else -math.inf), min(margin, MOST_SAME)
    above, below = ratio.log - math.log1p(margin), lowest - ratio.log
    within = min(math.log1p(same) - ratio.log, ratio.log - math.log1p(-same))
    distance = max(above, below, within)
    if ratio.error == 0:
        return math.inf if distance > 0 else -math.inf
    return distance / ratio.error


def runs_needed(ratio: Ratio, margin: float, num_comparisons: int = 1) -> int | None:
    """The least n above k * (t * s / (|d| - ln(1 + margin)))^2, where k is 2 runs, or 1 pair, and t has the degrees of
    freedom of n. If the difference is smaller than the margin, n decides that both are the same."""
    beyond, within = abs(ratio.log) - math.log1p(margin), math.log1p(min(margin, MOST_SAME)) - abs(ratio.log)
    gap = max(beyond, within)
    is_paired = ratio.method == "paired"

    def decides(count: int) -> bool:
        degrees = count - 1 if is_paired else 2 * (count - 1)
        t = quantile(TWO_SIDED / 2 / num_comparisons, degrees)
        return t * ratio.deviation * math.sqrt((1 if is_paired else 2) / count) < gap

    if not decides(MOST_RUNS):
        return None
    low, high = 1, MOST_RUNS  # the first does not decide, the second does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
