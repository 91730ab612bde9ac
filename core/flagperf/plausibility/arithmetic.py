"""What is possible, in plain numbers: used for recorded runs and for the cells of published pages."""

from __future__ import annotations

import math
from collections.abc import Mapping

GIB_PER_GB = 1e9 / (1 << 30)


def is_gb_for_gib(value: float, total: float) -> bool:
    """A figure above the total that fits if its unit is 10^9 and not 2^30 bytes."""
    return total > 0 and value > total >= value * GIB_PER_GB


def differ_by_unit(one: float, other: float, difference: float) -> bool:
    """One of the two is 2^30 where the other is 10^9, within a relative difference."""
    if one <= 0 or other <= 0:
        return False
    ratio = max(one, other) / min(one, other)
    return abs(ratio * GIB_PER_GB - 1) <= difference


def explaining_row(rate: float, row: str, peaks: Mapping[str, float]) -> str:
    """The next faster precision that could have computed at this rate, for one that its own peak does not allow. Empty
    if none could."""
    faster = {name: peak for name, peak in peaks.items() if peak >= rate and peak > peaks.get(row, 0.0)}
    return min(faster, key=lambda name: faster[name], default="")


def largest_deviation(mean: float, high: float) -> float:
    """Of figures that are not negative, with this mean and maximum."""
    return math.sqrt(max(0.0, high - mean) * max(0.0, mean))


def scaling(rate: float, devices: int, base_rate: float, base_devices: int) -> float:
    """Throughput of a device among many, over that of a device of the base."""
    return (rate / devices) / (base_rate / base_devices)


def is_idle(share: float, watts: float, tdp: float, limits: Mapping[str, float]) -> bool:
    """A card that computes at a good part of its peak does not stay near its idle power."""
    return share > limits["share"] and watts < limits["power"] * tdp
