"""One run against one, by its steps."""

from __future__ import annotations

import random

import pytest

from flagperf.compare.sides import inside_runs


def test_the_ratio_is_that_of_the_metric_and_the_width_that_of_the_steps() -> None:
    source = random.Random(5)
    one, other = ([100 * (1 + source.gauss(0, 0.05)) for _ in range(400)] for _ in range(2))
    found = inside_runs(1.02, one, other)
    assert found is not None and found.ratio.value == 1.02
    half = 1.97 * 0.05 * (2 / 400) ** 0.5
    assert found.ratio.high == pytest.approx(1.02 * (1 + half), rel=2e-3)
    assert found.num_steps == (400, 400) and min(found.effective) > 300
    assert not found.ratio.has_interval, "steps give no verdict"


def test_too_few_steps_say_nothing() -> None:
    assert inside_runs(1.0, [1.0] * 9, [1.0] * 50) is None
    assert inside_runs(1.0, [float(n) for n in range(1, 90)], [1.0] * 50) is None
