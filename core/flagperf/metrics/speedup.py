"""How much faster one alternative is than another, from the blocks in which they took turns.

Blocks of the same number are neighbours in time, so what slows both down cancels in their ratio. The ratio is the mean
of its logarithms over blocks, with an interval that respects that neighbouring blocks are alike. Blocks count where
their samples count for the medians of both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import msgspec

from flagperf.events import RowMeasured, RowTiming
from flagperf.metrics.autocorrelation import mean_of_batches
from flagperf.metrics.student import two_sided
from flagperf.robust import median

Counts = Callable[[RowTiming], Sequence[bool]]
"""Which samples of a row count."""


class Speedup(msgspec.Struct, frozen=True, omit_defaults=True):
    ratio: float
    """Time of the other over the time of this one: above 1 is faster."""
    against: dict[str, str]
    """The labels of the other one that differ."""
    low: float | None = None
    """95 % interval. None where there are too few blocks, or they drift."""
    high: float | None = None
    p: float | None = None
    """Probability of such a difference, or a larger one, between equals."""
    blocks: int = 0
    """Pairs of blocks that count."""


def speedup_of(row: RowMeasured, base: RowMeasured, counts: Counts) -> Speedup | None:
    """None if the other one was not measured."""
    if base.status != "ok" or row.timing is None or base.timing is None:
        return None
    against = {name: label for name, label in base.labels.items() if row.labels.get(name) != label}
    ours, others = (_blocks(each.values, each.timing.block, counts(each.timing)) for each in (row, base) if each.timing)
    logs = [math.log(other / own) for own, other in zip(ours, others, strict=False) if own > 0 and other > 0]
    return _ratio(logs, against) if logs else None


def _ratio(logs: Sequence[float], against: dict[str, str]) -> Speedup:
    found = mean_of_batches(logs)
    if found is None:
        return Speedup(math.exp(median(logs)), against, blocks=len(logs))
    low, high = (math.exp(found.mean + sign * found.half) for sign in (-1, 1))
    p = two_sided(found.mean, found.error, found.degrees)
    return Speedup(math.exp(found.mean), against, low, high, p, len(logs))


def _blocks(values: Sequence[float], size: int, counts: Sequence[bool]) -> list[float]:
    """Give the median of the samples that count of every block, 0 where none does."""
    found = []
    for start in range(0, len(values), size):
        counted = list(itertools.compress(values[start : start + size], counts[start : start + size]))
        found.append(median(counted) if counted else 0.0)
    return found


def holm(probabilities: Sequence[float]) -> list[float]:
    """Corrected for their number: what is below 0.05 in this list is a finding of the whole table, not of one row."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    corrected, highest = [0.0] * len(probabilities), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(probabilities) - place) * probabilities[index]))
        corrected[index] = highest
    return corrected
