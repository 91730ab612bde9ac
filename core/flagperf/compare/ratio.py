"""Ratio: one side over the other, with a 95 % interval. The run is the unit: steps inside a run are alike.

With y = ln(value), d is the difference of the means, SE^2 = s_A^2 / n_A + s_B^2 / n_B with Welch's degrees of freedom,
and the interval is exp(d -+ t * SE); of two runs against more, the degrees are fewer. Runs that took turns on one
machine are compared pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.messages import Message, message
from flagperf.metrics.rows import holm
from flagperf.stats import student_quantile, upper_tail

TWO_SIDED = 0.05
"""The probability outside a 95 % interval, on both sides."""

DEGREES_OF_TWO = 1.5
"""The most degrees of freedom for two runs against more. Two that happen to be close pass for a steady side: by Welch's
own degrees, 89 % of the intervals of 2 against 10 runs contain the truth, where the two vary four times as much; by
these 93 %."""

MOST = 600.0
"""The largest half-width of the logarithm of a ratio: a wider one says nothing more."""

Method = Literal["welch", "paired", "steps", "none"]
"""`steps`: within one run of each side. `none`: a difference without an interval."""


class Ratio(msgspec.Struct, frozen=True):
    value: float
    """The other side over the baseline."""
    method: Method = "none"
    error: float = 0.0
    """Standard error of its logarithm."""
    degrees: float = 0.0
    """Degrees of freedom."""
    deviation: float = 0.0
    """Standard deviation of the logarithms between runs, or of the differences of pairs."""
    num_runs: int = 1
    """Runs of the side that has fewer; or pairs."""
    apart: float = 0.0
    """The difference that A against A shows, as a share: see `halves_apart`."""
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        return self.method in ("welch", "paired")

    @property
    def log(self) -> float:
        return math.log(self.value)


def ratio_of(baseline: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the ratio of values above 0. It has no interval if a side has a single value."""
    ours, others = _logs(baseline), _logs(other)
    value = geometric_mean(other) / geometric_mean(baseline)
    num_runs = min(len(ours), len(others))
    if num_runs < 2:
        return Ratio(value, num_runs=num_runs)
    parts = [(_variance(each), len(each)) for each in (ours, others)]
    error, degrees = welch([(variance / count, count - 1) for variance, count in parts])
    if num_runs == 2 and len(ours) != len(others):
        degrees = min(degrees, DEGREES_OF_TWO)
    deviation = math.sqrt(sum(variance for variance, _ in parts) / 2)
    apart = max(halves_apart(ours), halves_apart(others))
    return with_interval(Ratio(value, "welch", error, degrees, deviation, num_runs, apart))


def ratio_of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio of pairs (baseline, other), each from neighbouring runs."""
    differences = [math.log(other) - math.log(own) for own, other in pairs]
    value = math.exp(_mean(differences))
    if len(differences) < 2:
        return Ratio(value, num_runs=len(differences))
    variance, count = _variance(differences), len(differences)
    error, apart = math.sqrt(variance / count), halves_apart(differences)
    return with_interval(Ratio(value, "paired", error, count - 1, math.sqrt(variance), count, apart))


def welch(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom. Each part has the variance of the mean of a
    side, and its degrees of freedom."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return 0.0, sum(degrees for _, degrees in parts)
    return math.sqrt(total), total**2 / sum(variance**2 / degrees for variance, degrees in parts)


def with_interval(ratio: Ratio) -> Ratio:
    half = min(student_quantile(TWO_SIDED / 2, ratio.degrees) * ratio.error, MOST)
    low, high = (math.exp(ratio.log + sign * half) for sign in (-1, 1))
    return msgspec.structs.replace(ratio, low=low, high=high)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean. That of equal values is exactly their value."""
    return values[0] if min(values) == max(values) else math.exp(_mean(_logs(values)))


def halves_apart(logs: Sequence[float]) -> float:
    """Return how far the second half of a side's own runs is from the first, as a share; of pairs, that of their
    ratios. 0 with fewer than four. What was measured twice under one name cannot tell two names apart."""
    if len(logs) < 4:
        return 0.0
    middle = len(logs) // 2
    return math.expm1(abs(_mean(logs[middle:]) - _mean(logs[:middle])))


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


# What an interval allows to say: above, below or within the margin, or nothing yet.
#
# Above if the lower limit of the interval is above 1 + margin, below if the upper one is below 1 - margin, within if
# all of it is between. If several sides or rows are compared with one baseline, that is as many chances of a wrong
# verdict: a verdict then also needs a probability that is small enough after Holm's correction. For a single
# comparison that changes nothing.


MARGIN = 0.01
"""A difference below 1 % does not count."""

MOST_SAME = 0.1
"""A side that differs from itself by more than 10 % is not called the same as anything."""

MOST_RUNS = 1000
"""More repeats than anybody would make."""

Place = Literal["above", "below", "within", "undecided"]


class Verdict(msgspec.Struct, frozen=True):
    place: Place
    margin: float
    p: float
    """Two-sided probability of the likeliest place: below 0.05 where the interval alone decides."""
    corrected_p: float
    """The probability after Holm's correction for the number of comparisons."""
    runs_needed: int | None = None
    """Runs of each side, or pairs, that would decide, if undecided. None if that takes more than MOST_RUNS."""


def judge(ratios: Sequence[Ratio], margins: Sequence[float]) -> list[Verdict]:
    """Return verdicts that are read together. Every ratio has an interval."""
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
    """Return the two-sided probability of the best supported of the three places. It is below 0.05 exactly if the
    interval decides."""
    lowest, same = (math.log1p(-margin) if margin < 1 else -math.inf), min(margin, MOST_SAME)
    above, below = ratio.log - math.log1p(margin), lowest - ratio.log
    within = min(math.log1p(same) - ratio.log, ratio.log - math.log1p(-same))
    distance = max(above, below, within)
    if ratio.error == 0:
        return 0.0 if distance > 0 else 1.0
    return min(1.0, 2 * upper_tail(distance / ratio.error, ratio.degrees))


def runs_needed(ratio: Ratio, margin: float, num_comparisons: int = 1) -> int | None:
    """Return the least n above k * (t * s / (|d| - ln(1 + margin)))^2, where k is 2 runs, or 1 pair, and t has the
    degrees of freedom of n. If the difference is smaller than the margin, n decides that both are the same."""
    beyond, within = abs(ratio.log) - math.log1p(margin), math.log1p(min(margin, MOST_SAME)) - abs(ratio.log)
    gap = max(beyond, within)
    is_paired = ratio.method == "paired"

    def decides(count: int) -> bool:
        degrees = count - 1 if is_paired else 2 * (count - 1)
        t = student_quantile(TWO_SIDED / 2 / num_comparisons, degrees)
        return t * ratio.deviation * math.sqrt((1 if is_paired else 2) / count) < gap

    if not decides(MOST_RUNS):
        return None
    low, high = 1, MOST_RUNS  # the first does not decide, the second does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


Word = Literal["faster", "slower", "better", "worse", "same", "undecided"]

Better = Literal["faster", "quicker", "higher", "lower"]
"""The direction that is better, as in MetricEntry.better."""


class Contrast(msgspec.Struct, frozen=True):
    """Sets something of one side against the same of the baseline, with the verdict that its interval allows."""

    ratio: Ratio | None = None
    verdict: Verdict | None = None
    word: Word | None = None
    why: Message | None = None
    """Why there is no ratio, or no verdict."""

    @property
    def is_good(self) -> bool | None:
        return {"faster": True, "better": True, "slower": False, "worse": False}.get(self.word or "")


def judged(contrasts: Sequence[Contrast], margins: Sequence[float], better: Sequence[Better | None]) -> list[Contrast]:
    """Return the contrasts with their verdicts, which are corrected for the number of those that have one."""
    reasons: list[Message | None] = []
    for contrast, way in zip(contrasts, better, strict=True):
        why = contrast.why
        if why is None and contrast.ratio is None:
            why = message("compare.missing")
        elif why is None and contrast.ratio is not None and not contrast.ratio.has_interval:
            why = message("compare.single")
        elif why is None and way is None:
            why = message("compare.no_direction")
        reasons.append(why)
    open_ones = [index for index, why in enumerate(reasons) if why is None]
    ratios = [ratio for index in open_ones if (ratio := contrasts[index].ratio) is not None]
    verdicts = dict(zip(open_ones, judge(ratios, [margins[index] for index in open_ones]), strict=True))
    found = []
    for index, (contrast, why) in enumerate(zip(contrasts, reasons, strict=True)):
        verdict = verdicts.get(index)
        word = word_of(verdict.place, better[index]) if verdict else None
        found.append(msgspec.structs.replace(contrast, verdict=verdict, word=word, why=why))
    return found


def word_of(place: Place, better: Better | None) -> Word:
    if place == "within":
        return "same"
    if place == "undecided":
        return "undecided"
    is_good = (place == "above") == (better in ("faster", "higher"))
    if better in ("faster", "quicker"):
        return "faster" if is_good else "slower"
    return "better" if is_good else "worse"
