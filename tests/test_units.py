"""Small figures keep their digits, whatever hardware made them; large ones stay short."""

from __future__ import annotations

import pytest

from flagperf import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1755.53, "1755.5"), (10.04, "10.0"), (9.996, "10.0"), (9.0, "9.0"), (5.2, "5.2"), (1.234, "1.23"),
        (0.3126, "0.313"), (0.00012345, "0.000123"), (0.0, "0.0"),
    ],
)  # fmt: skip
def test_throughputs_below_ten_have_three_digits(value: float, text: str) -> None:
    assert units.per_second(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (51841.2, "51841"), (9999.6, "10000"), (9999.4, "9999"), (8.092e-5, "8.092e-05"), (1.23456e7, "1.235e+07"),
        (-51841.2, "-51841"),
    ],
)  # fmt: skip
def test_four_digits_are_written_out_where_they_can_be(value: float, text: str) -> None:
    assert units.four_digits(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0 s"), (0.0042, "4.2 ms"), (0.041, "41 ms"), (0.1, "0.1 s"), (125.0, "2 min 05 s")]
)
def test_short_times_are_not_nothing(value: float, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2345, "23.4%"), (0.974, "97.4%"), (0.01, "1.0%"), (0.00999, "0.999%"), (0.0003126, "0.0313%"),
        (0.0, "0.0%"), (-0.002, "-0.2%"),
    ],
)  # fmt: skip
def test_shares_below_one_percent_have_three_digits(value: float, text: str) -> None:
    assert units.percent(value) == text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-15, "killed by SIGTERM"),
        (-9, "killed by SIGKILL, often because the machine ran out of memory"),
        (-40, "killed by signal 40"),
    ],
)
def test_a_return_code_is_told_in_words(code: int, text: str) -> None:
    assert units.exit_status(code) == text
