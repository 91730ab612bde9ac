"""Power of a card while a row was timed, and the energy of one call. docs/metrics.md, Rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from flagperf.metrics.cards import DeviceKey
from flagperf.metrics.series import card_series
from flagperf.metrics.span import Span

if TYPE_CHECKING:
    from flagperf.metrics.card_readings import CardReadings
    from flagperf.metrics.rows import MeasuredRow

MIN_SAMPLES = 20
MAX_PERIODS = 3
"""A gap of more periods between samples is one."""

MIN_BUSY = 0.9
"""Share of the time that the samples of the row take; else the card did other things as well."""

Problem = Literal["", "not_read", "few_samples", "gap", "not_alone"]


class RowPower(msgspec.Struct, frozen=True):
    """Over the window of one row."""

    watts: float | None = None
    joules: float | None = None
    """By the energy counter if there is one, else by the power samples."""
    problem: Problem = "not_read"


RowWindows = Mapping[DeviceKey, Sequence[Span]]
RowPowers = Mapping[tuple[DeviceKey, Span], RowPower]


def row_powers(card: DeviceKey, read: CardReadings, windows: RowWindows, period_seconds: float) -> RowPowers:
    return {(card, window): _row_power(card, read, window, period_seconds) for window in windows.get(card, ())}


def _row_power(card: DeviceKey, read: CardReadings, window: Span, period_seconds: float) -> RowPower:
    figures = dict(card_series(card, read, window))
    power = figures.get("power_watts")
    energy = figures.get("energy_joules", power)
    if power is None or energy is None:
        return RowPower()
    if power.num_inside < MIN_SAMPLES:
        return RowPower(problem="few_samples")
    if power.largest_gap_seconds > MAX_PERIODS * period_seconds:
        return RowPower(problem="gap")
    return RowPower(power.mean, energy.joules, "")


def with_power(row: MeasuredRow, card: DeviceKey, powers: RowPowers) -> MeasuredRow:
    """A row that was not timed, or has no figure, stays as it is."""
    if row.window is None or row.mean is None:
        return row
    if row.busy < MIN_BUSY:
        return msgspec.structs.replace(row, power_problem="not_alone")
    found = powers.get((card, row.window), RowPower())
    if found.joules is None:
        return msgspec.structs.replace(row, power_problem=found.problem)
    return msgspec.structs.replace(row, power=found.watts, energy=found.joules / row.total_calls)
