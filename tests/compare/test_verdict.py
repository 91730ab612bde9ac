"""Verdicts: only what the interval allows."""

from __future__ import annotations

import math

import pytest

from flagperf.compare.ratio import (
    Contrast,
    Ratio,
    judge,
    judged,
    place_of,
    probability,
    ratio_of,
    ratio_of_pairs,
    runs_needed,
    with_interval,
    word_of,
)
from flagperf.stats import student_quantile as quantile


def ratio(value: float, error: float, degrees: float = 8, **more: object) -> Ratio:
    return with_interval(Ratio(value, "welch", error, degrees, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "half", "place"),
    [
        (1.05, 0.02, "above"),
        (1.02, 0.005, "above"),
        (1.02, 0.02, "undecided"),
        (0.95, 0.02, "below"),
        (0.98, 0.02, "undecided"),
        (1.002, 0.005, "within"),
        (1.002, 0.02, "undecided"),
        (1.009, 0.0015, "undecided"),
    ],
)
def test_places(value: float, half: float, place: str) -> None:
    found = ratio(value, half / quantile(0.025, 8))
    assert place_of(found, 0.01) == place
    assert (probability(found, 0.01) < 0.05) == (place != "undecided")
    assert judge([found], [0.01])[0].place == place


def test_a_wider_margin_decides_less_about_differences() -> None:
    found = ratio(1.03, 0.001)
    assert judge([found], [0.01])[0].place == "above"
    assert judge([found], [0.05])[0].place == "within"


def test_what_differs_from_itself_by_much_is_not_the_same_as_anything() -> None:
    found = ratio(1.15, 0.01)
    assert judge([found], [0.5])[0].place == "undecided"
    assert judge([ratio(1.0, 0.001)], [1.5])[0].place == "within"
    assert judge([found], [0.5])[0].runs_needed is None


def test_several_comparisons_need_more() -> None:
    """p of one is 0.0455; Holm doubles it for two comparisons, so that the same interval no longer decides."""
    close = ratio(math.exp(math.log(1.01) + 0.01), 0.01 / quantile(0.0455 / 2, 8), deviation=0.01)
    assert judge([close], [0.01])[0].place == "above"
    of_two = judge([close, ratio(1.0, 0.5, deviation=0.5)], [0.01, 0.01])[0]
    assert of_two.place == "undecided"
    assert of_two.corrected_p == pytest.approx(2 * of_two.p)


def test_the_repeats_that_would_decide_by_hand() -> None:
    """s = 2 %, d = ln(1.05): gap = ln(1.05) - ln(1.01) = 0.038840. n = 2 * (t * 0.02 / gap)^2: with t(8) = 2.306 of
    n = 5 it is 2.82, with t(6) = 2.447 of 4 it is 3.18, with t(4) = 2.776 of 3 it is 4.09: so 4."""
    assert runs_needed(Ratio(1.05, "welch", deviation=0.02), 0.01) == 4


def test_pairs_need_half_of_it() -> None:
    """n = (t * 0.02 / 0.038840)^2: with t(3) = 3.182 of n = 4 it is 2.68, with t(2) = 4.303 of 3 it is 4.91."""
    assert runs_needed(Ratio(1.05, "paired", deviation=0.02), 0.01) == 4
    assert runs_needed(Ratio(1.05, "paired", deviation=0.04), 0.01) == 7


def test_no_number_of_repeats_tells_a_difference_from_its_margin() -> None:
    assert runs_needed(Ratio(1.01, "welch", deviation=0.02), 0.01) is None


@pytest.mark.parametrize(
    ("place", "better", "word"),
    [
        ("above", "faster", "faster"),
        ("below", "faster", "slower"),
        ("above", "quicker", "slower"),
        ("below", "quicker", "faster"),
        ("above", "higher", "better"),
        ("below", "lower", "better"),
        ("above", "lower", "worse"),
        ("within", "lower", "same"),
        ("undecided", "faster", "undecided"),
    ],
)
def test_words_follow_the_direction_of_the_metric(place: str, better: str, word: str) -> None:
    assert word_of(place, better) == word  # type: ignore[arg-type]


def test_why_there_is_no_verdict() -> None:
    single, group = Contrast(ratio_of([1.0], [2.0])), Contrast(ratio_of([1.0, 1.01], [2.0, 2.01]))
    paired = Contrast(ratio_of_pairs([(1.0, 2.0), (1.01, 2.02)]))
    found = judged([single, group, paired, Contrast()], [0.01] * 4, ["faster", None, "faster", "faster"])
    assert [each.word for each in found] == [None, None, "faster", None]
    assert [each.why.code if each.why else "" for each in found] == [
        "compare.single", "compare.no_direction", "", "compare.missing",
    ]  # fmt: skip
    assert [each.is_good for each in found] == [None, None, True, None]
