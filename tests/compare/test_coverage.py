"""Intervals and verdicts over simulated runs whose truth is known: steps are autocorrelated, and runs differ."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from flagperf.compare.ratio import Ratio, judge, ratio_of, ratio_of_pairs

RHO, STEP_SIGMA, NUM_STEPS = 0.8, 0.05, 60
REPEATS = 1000

pytestmark = pytest.mark.full


def run(source: random.Random, speed: float, run_sigma: float) -> float:
    """The throughput of a run: AR(1) steps about a speed of its own."""
    own = speed * math.exp(source.gauss(0, run_sigma))
    noise = math.sqrt(1 - RHO * RHO) * STEP_SIGMA
    deviation, total = source.gauss(0, STEP_SIGMA), 0.0
    for _ in range(NUM_STEPS):
        deviation = RHO * deviation + source.gauss(0, noise)
        total += (1 + deviation) / own
    return NUM_STEPS / total


def groups(source: random.Random, truth: float, sizes: tuple[int, int], sigmas: tuple[float, float]) -> Ratio:
    one, other = (
        [run(source, speed, sigma) for _ in range(size)]
        for speed, size, sigma in zip((1.0, truth), sizes, sigmas, strict=True)
    )
    return ratio_of(one, other)


def pairs(source: random.Random, truth: float, count: int) -> Ratio:
    """Both drift by 20 % from the first pair to the last."""
    speeds = [1 + 0.2 * index / count for index in range(count)]
    return ratio_of_pairs([(run(source, speed, 0.01), run(source, truth * speed, 0.01)) for speed in speeds])


@pytest.mark.parametrize(
    ("name", "simulate"),
    [
        ("3 and 3 runs", lambda source, truth: groups(source, truth, (3, 3), (0.01, 0.01))),
        ("5 and 5 runs", lambda source, truth: groups(source, truth, (5, 5), (0.02, 0.02))),
        ("2 and 10 runs, the two noisier", lambda source, truth: groups(source, truth, (2, 10), (0.04, 0.01))),
        ("5 and 2 runs, the two noisier", lambda source, truth: groups(source, truth, (5, 2), (0.01, 0.05))),
        ("10 and 4 runs, one side noisier", lambda source, truth: groups(source, truth, (10, 4), (0.01, 0.04))),
        ("6 pairs that drift", lambda source, truth: pairs(source, truth, 6)),
    ],
)
def test_intervals_cover_the_truth_and_equals_are_not_called_faster(
    name: str, simulate: Callable[[random.Random, float], Ratio]
) -> None:
    source = random.Random(name)
    truth, covered, faster, slower = 1.03, 0, 0, 0
    for _ in range(REPEATS):
        found = simulate(source, truth)
        assert found.low is not None and found.high is not None
        covered += found.low <= truth <= found.high
    for _ in range(REPEATS):
        found = simulate(source, 1.0)
        (verdict,) = judge([found], [max(0.01, found.apart)])
        faster += verdict.place == "above"
        slower += verdict.place == "below"
    assert 0.92 <= covered / REPEATS <= 0.98, name
    assert faster / REPEATS <= 0.025, name
    assert slower / REPEATS <= 0.025, name
