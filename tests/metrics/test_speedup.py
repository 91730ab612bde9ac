"""Alternatives that took turns."""

import random

import msgspec
import pytest

from flagperf.events import RowMeasured, RowTiming
from flagperf.metrics.rows import holm, measured_rows


def row(library, values, block=2, **more):
    timing = RowTiming("device_events", 1, 0, 1, tuple(range(len(values))), block=block)
    labels = {"operator": "mm", "library": library}
    return RowMeasured(0, "operators", labels, "s", tuple(values), timing=timing, turns=1, **more)


def noisy(source, mean, drift=()):
    drift = drift or [1.0] * 60
    return [mean * slow * (1 + source.gauss(0, 0.02)) for slow in drift]


def test_a_faster_alternative_is_found_under_a_drift_that_both_have():
    source = random.Random(3)
    drift = [1 + index / 60 for index in range(60)]
    base, other = row("eager", noisy(source, 1.0, drift)), row("gems", noisy(source, 0.8, drift))
    plain, compared = measured_rows(0, [base, other])
    assert plain.speedup is None
    found = compared.speedup
    assert found.against == {"library": "eager"}
    assert found.low < 1.25 < found.high and found.high - found.low < 0.05 and found.p < 1e-6


def test_equals_are_not_called_different():
    source = random.Random(4)
    hits = 0
    for _ in range(100):
        _, other = measured_rows(0, [row("eager", noisy(source, 1.0)), row("gems", noisy(source, 1.0))])
        hits += other.speedup.p < 0.05
    assert hits <= 12


def test_few_blocks_have_a_ratio_without_an_interval():
    _, other = measured_rows(0, [row("eager", [2.0] * 8), row("gems", [1.0] * 8)])
    assert (other.speedup.ratio, other.speedup.low, other.speedup.p) == (2.0, None, None)
    assert other.speedup.blocks == 4


def long(library, values):
    """A sample in every tenth of a second."""
    starts = tuple(index * 100_000_000 for index in range(len(values)))
    timing = RowTiming("synchronize", 1, 0, len(values) * 100_000_000, starts, block=2)
    made = row(library, values)
    return msgspec.structs.replace(made, timing=timing)


def test_the_first_half_of_a_long_row_counts_neither_for_the_median_nor_for_the_speedup():
    eager, slow = long("eager", [1.0] * 40), long("gems", [0.5] * 20 + [4.0] * 20)
    plain, other = measured_rows(0, [eager, slow])
    assert plain.median / other.median == other.speedup.ratio == 0.25
    assert other.speedup.blocks == 10


def test_only_blocks_count_that_count_in_both():
    short = row("eager", [1.0] * 40)
    _, other = measured_rows(0, [short, long("gems", [0.5] * 20 + [4.0] * 20)])
    assert (other.speedup.ratio, other.speedup.blocks) == (0.25, 10)


def test_nothing_is_compared_with_what_was_not_measured():
    failed = row("eager", [], status="unsupported", problem="no")
    assert measured_rows(0, [failed, row("gems", [1.0] * 40)])[1].speedup is None
    assert measured_rows(0, [row("eager", [1.0] * 40), row("gems", [1.0] * 40, status="invalid")])[1].speedup is None


def test_many_rows_are_many_tests():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
