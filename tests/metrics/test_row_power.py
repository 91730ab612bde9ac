"""Power and energy of a row, from the samples of its card in its window."""

import msgspec
import pytest

from flagperf.api import Reading
from flagperf.events import RowMeasured, RowTiming
from flagperf.metrics.node_record import CardReadings, row_power, with_power
from flagperf.metrics.rows import measured_row
from flagperf.units import SECOND_NS

CARD = (0, "card-0")


def timed_row(seconds=40, value=0.5):
    """Two calls a second, back to back, unless they are shorter."""
    starts = tuple(range(0, seconds * SECOND_NS, SECOND_NS // 2))
    timing = RowTiming("device_events", 1, 0, seconds * SECOND_NS, starts)
    return measured_row(0, RowMeasured(0, "gemm", {}, "s", (value,) * len(starts), timing=timing))


def readings(watts, times, joules=None):
    """`joules` at the beginning; the counter then follows the power."""
    read = CardReadings()
    for t in times:
        energy = None if joules is None else joules + t * watts
        read.times_ns.append(round(t * SECOND_NS))
        read.readings.append(Reading("card-0", power_watts=watts, energy_joules=energy))
    return read


def powered(row, read):
    return with_power(row, CARD, {(CARD, row.window): row_power(CARD, read, row.window, 1.0)})


@pytest.mark.parametrize("joules", [None, 1000.0])
def test_energy_is_of_one_call(joules):
    row = powered(timed_row(), readings(300.0, range(-1, 42), joules))
    assert (row.power, row.power_problem) == (300.0, "")
    assert row.energy == pytest.approx(150.0)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (range(19), "few_samples"),
        ([*range(15), *range(20, 41)], "gap"),
        ([], "not_read"),
    ],
)
def test_too_few_samples_or_a_gap_leave_no_figure(times, problem):
    row = powered(timed_row(), readings(300.0, times))
    assert (row.power, row.energy, row.power_problem) == (None, None, problem)


def test_a_card_that_did_other_things_in_between_has_no_figure():
    row = powered(timed_row(value=0.4), readings(300.0, range(-1, 42)))
    assert (row.energy, row.power_problem) == (None, "not_alone")


def test_a_row_without_samples_stays_as_it_is():
    plain = measured_row(0, RowMeasured(0, "capacity", {}, "bytes", (1.0,)))
    assert with_power(plain, CARD, {}) == plain
    failed = msgspec.structs.replace(timed_row(), mean=None)
    assert with_power(failed, CARD, {}) == failed
