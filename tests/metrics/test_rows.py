"""What a measured row is reduced to."""

import random

import msgspec
import pytest

from flagperf.events import RowMeasured, RowTiming
from flagperf.metrics.rows import measured_row, rated
from flagperf.stats import median, median_interval
from flagperf.units import SECOND_NS


def timing(starts_ns, length_ns, **more):
    return RowTiming("device_events", 1, 0, length_ns, tuple(starts_ns), first_ns=7 * SECOND_NS, **more)


def row(values, **more):
    return RowMeasured(0, "thing", {"size": "1"}, "s", tuple(values), **more)


def test_a_short_row_counts_all_samples():
    found = measured_row(3, row([1.0, 2.0, 3.0], timing=timing([0, 1, 2], SECOND_NS), work={"flops": 8}))
    assert (found.rank, found.num_repeats, found.median, found.low, found.high) == (3, 3, 2.0, 1.0, 3.0)
    assert found.mean == 2.0 and found.cv == pytest.approx(0.408, abs=1e-3)
    assert found.burst is None and found.first == 7.0 and found.rate("flops") == 4.0


def test_a_long_row_counts_from_its_half_on_and_has_a_burst():
    """A card that is fast for a second and then slow."""
    starts = [index * SECOND_NS // 10 for index in range(100)]
    values = [0.1 if start < SECOND_NS else 0.2 for start in starts]
    found = measured_row(0, row(values, timing=timing(starts, 10 * SECOND_NS, issue_ns=(50_000,) * 100)))
    assert (found.num_repeats, found.median, found.burst) == (50, 0.2, 0.1)
    assert found.issue == 5e-5 and found.p5 == found.p95 == 0.2


@pytest.mark.parametrize("status", ["invalid", "unsupported", "out_of_memory", "error"])
def test_a_row_that_is_not_ok_has_no_figure(status):
    found = measured_row(0, row([1.0, 2.0], status=status, problem="because"))
    assert found.median is None and found.problem == "because" and found.rate("flops") is None


def test_the_share_is_of_the_peak_that_takes_longest():
    measured = measured_row(0, row([2.0], work={"flops": 10, "bytes": 10}, limits={"flops": "fp16", "bytes": "memory"}))
    found = rated(measured, {"fp16": 10.0, "memory": 20.0})
    assert (found.roofline, found.share, found.bound_by) == (1.0, 0.5, "flops")
    assert rated(measured, {"fp16": 10.0}) == measured


def test_what_computes_faster_than_its_peak_is_invalid():
    measured = measured_row(0, row([0.5], work={"flops": 10}, limits={"flops": "fp32"}))
    found = rated(measured, {"fp32": 10.0})
    assert found.status == "invalid" and found.median is None
    assert found.problem == "200% of the card's peak for fp32: it computes something else"


def test_what_moves_more_than_the_memory_can_was_in_a_cache_and_has_no_share():
    measured = measured_row(0, row([0.5], work={"bytes": 10}, limits={"bytes": "memory_bandwidth"}))
    found = rated(measured, {"memory_bandwidth": 10.0})
    assert found.status == "ok" and found.median == 0.5 and found.share is None


# --- the interval ---------------------------------------------------------------------------------------------------


def autoregressive(source, count, correlation):
    value = 0.0
    for _ in range(count):
        value = correlation * value + source.gauss(0, 1)
        yield 100 + value


def coverage(correlation, runs=200, count=400):
    """The share of the intervals that contain the true median, and their mean width."""
    source, hits, widths = random.Random(1), 0, []
    for _ in range(runs):
        found = median_interval(list(autoregressive(source, count, correlation)))
        if found is not None:
            hits += found.low <= 100 <= found.high
            widths.append(found.high - found.low)
    return hits / len(widths), sum(widths) / len(widths)


@pytest.mark.full
def test_the_interval_contains_the_true_median_also_where_samples_depend_on_each_other():
    independent, narrow = coverage(0.0)
    dependent, wide = coverage(0.8)
    assert independent > 0.9 and dependent > 0.85
    assert wide > 2.5 * narrow


def test_there_is_no_interval_of_few_samples_or_of_a_drift():
    assert median_interval([1.0] * 9) is None
    assert median_interval([float(index) for index in range(400)]) is None


def test_a_few_slow_samples_do_not_widen_it():
    source = random.Random(2)
    values = [100 + source.gauss(0, 1) for _ in range(200)]
    slow = [value * (20 if index % 40 == 0 else 1) for index, value in enumerate(values)]
    found = median_interval(slow)
    assert 99 < found.low < found.high < 101


def test_rows_of_older_files_have_no_timing():
    old = {"type": "row_measured", "t_ns": 1, "name": "n", "labels": {}, "unit": "s", "values": [1.0, 3.0]}
    found = measured_row(0, msgspec.convert(old, RowMeasured))
    assert (found.median, found.calls, found.status) == (2.0, 0, "ok")


def test_an_interval_contains_the_median_also_where_samples_are_of_two_kinds():
    """Of a device that changes between two speeds: the medians of its batches end at 1.55, below that of all."""
    source, speed, values = random.Random(118), 0, []
    for _ in range(400):
        speed = 1 - speed if source.random() > 0.9 else speed
        values.append((1.0, 2.0)[speed] + source.random() / 10)
    found = median_interval(values)
    assert found.low <= median(values) <= found.high
