"""Series: one figure of one card over the measured window on its node, reduced while the node's file is read."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, gt, lt, sub
from typing import Any

import msgspec

from flagperf.metrics.card_readings import CardReadings
from flagperf.metrics.cards import DeviceKey
from flagperf.metrics.span import Span
from flagperf.units import SECOND_NS

NUMBERS = ("utilisation_percent", "power_watts", "temperature_celsius", "energy_joules", "clock_mhz")
THROTTLING = "throttle_reasons"


class Series(msgspec.Struct, frozen=True):
    """At least one reading is inside the window. Of throttle reasons, the number is 1 while there is one, else 0."""

    card: DeviceKey
    """Of a figure that the chips of a board share: the node, and the board in place of a device."""
    num_inside: int
    """Readings inside the window. `mean`, `low` and `high` are theirs."""
    mean: float
    low: float
    high: float
    lowest: float
    """Of all readings, also outside the window."""
    largest_gap_seconds: float
    """The largest gap that overlaps the window, including at its ends."""
    falls: bool
    """A reading is below the one before it."""
    joules: float = 0.0
    """Energy over the window, if the figure is an energy counter or power."""
    reasons: dict[str, int] = {}
    """Throttle reason -> number of readings inside the window that have it."""
    is_of_board: bool = False


NodeWindows = Mapping[tuple[int, str], Span]
"""(Node index, boot id) -> from the earliest start of a rank's window to the latest end."""


def card_series(card: DeviceKey, found: CardReadings, window: Span) -> Iterator[tuple[str, Series]]:
    """Figure (a field of Reading) -> its series, for those that were read inside the window."""
    for figure in (*NUMBERS, THROTTLING):
        curve = _curve(found.times_ns, list(map(attrgetter(figure), found.readings)), window)
        if curve.inside:
            yield (
                figure,
                _throttling(card, curve) if figure == THROTTLING else _series(card, curve, _ENERGY.get(figure)),
            )


def _throttling(card: DeviceKey, curve: _Curve) -> Series:
    reasons = Counter(reason for words in curve.inside for reason in words)
    numbers = msgspec.structs.replace(curve, values=[float(bool(words)) for words in curve.values])
    return msgspec.structs.replace(_series(card, numbers), reasons=dict(reasons))


def _series(card: DeviceKey, curve: _Curve, energy: Callable[[_Curve], float] | None = None) -> Series:
    inside, values = curve.inside, curve.values
    return Series(
        card=card,
        num_inside=len(inside),
        mean=sum(inside) / len(inside),
        low=min(inside),
        high=max(inside),
        lowest=min(values),
        largest_gap_seconds=curve.place.largest_gap_seconds,
        falls=any(map(gt, values, values[1:])),
        joules=energy(curve) if energy else 0.0,
    )


class _Place(msgspec.Struct, frozen=True):
    """Where the window is among the times of readings."""

    inside: slice
    between: slice
    """Without readings at the very start and end of the window."""
    largest_gap_seconds: float


class _Curve(msgspec.Struct, frozen=True):
    """Times that increase, and the values then. Readings outside the window are kept to interpolate its edges."""

    times_ns: Sequence[int]
    values: Sequence[Any]
    window: Span
    place: _Place

    @property
    def inside(self) -> Sequence[Any]:
        return self.values[self.place.inside]

    def at(self, t_ns: int) -> float:
        """Linear interpolation between neighbours; linear extrapolation outside the readings."""
        if len(self.times_ns) == 1:
            return float(self.values[0])
        index = min(max(1, bisect_left(self.times_ns, t_ns)), len(self.times_ns) - 1)
        (t0, t1), (v0, v1) = self.times_ns[index - 1 : index + 1], self.values[index - 1 : index + 1]
        return float(v0 + (v1 - v0) * (t_ns - t0) / (t1 - t0)) if t1 > t0 else float(v1)


def _curve(times_ns: Sequence[int], values: Sequence[Any], window: Span) -> _Curve:
    """Of the readings that have a value."""
    if None in values:
        known = [(t_ns, value) for t_ns, value in zip(times_ns, values, strict=True) if value is not None]
        times_ns, values = [t_ns for t_ns, _ in known], [value for _, value in known]
    if not all(map(lt, times_ns, times_ns[1:])):
        times_ns, values = zip(*sorted(zip(times_ns, values, strict=True)), strict=True)
    return _Curve(times_ns, values, window, _place(tuple(times_ns), window))


@functools.lru_cache(maxsize=16)
def _place(times_ns: tuple[int, ...], window: Span) -> _Place:
    """Cached because the figures of a node's cards are read at the same times."""
    at_start, after_start = bisect_left(times_ns, window.began_ns), bisect_right(times_ns, window.began_ns)
    at_end, after_end = bisect_left(times_ns, window.ended_ns), bisect_right(times_ns, window.ended_ns)
    before = times_ns[:after_start][-1:] or (window.began_ns,)
    after = times_ns[at_end:][:1] or (window.ended_ns,)
    moments = (*before, *times_ns[after_start:at_end], *after)
    return _Place(
        inside=slice(at_start, after_end),
        between=slice(after_start, at_end),
        largest_gap_seconds=max(map(sub, moments[1:], moments)) / SECOND_NS,
    )


def _counted(curve: _Curve) -> float:
    return curve.at(curve.window.ended_ns) - curve.at(curve.window.began_ns)


def _integrated(curve: _Curve) -> float:
    """Trapezoidal rule. Power at the edges of the window is interpolated, or taken from the nearest sample."""
    window, first, last = curve.window, curve.times_ns[0], curve.times_ns[-1]
    start, end = (curve.at(min(max(t_ns, first), last)) for t_ns in (window.began_ns, window.ended_ns))
    between = dict(zip(curve.times_ns[curve.place.between], curve.values[curve.place.between], strict=True))
    points = {window.began_ns: start, **between, window.ended_ns: end}  # the last of several at one moment
    pairs = pairwise(points.items())
    total: float = sum((v0 + v1) / 2 * (t1 - t0) / SECOND_NS for (t0, v0), (t1, v1) in pairs)
    return total


_ENERGY: dict[str, Callable[[_Curve], float]] = {"energy_joules": _counted, "power_watts": _integrated}
