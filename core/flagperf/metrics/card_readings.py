"""CardReadings: the readings of one card. They exist only while the file of its node is read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from flagperf.api import Reading
from flagperf.events import Sampled


class CardReadings(msgspec.Struct):
    """`times_ns` and `readings` are those while the workers ran, in the order of the file. `baseline` is the last one
    before they started."""

    times_ns: list[int] = []
    readings: list[Reading] = []
    baseline: Reading | None = None


def readings_by_card(samples: Iterable[Sampled]) -> dict[str, CardReadings]:
    """Device id -> its readings, for every card that was read."""
    found: dict[str, CardReadings] = {}
    for sample in samples:
        for reading in sample.readings:
            card = found.get(reading.device_id)
            if card is None:
                card = found[reading.device_id] = CardReadings()
            if sample.baseline:
                card.baseline = reading
            else:
                card.times_ns.append(sample.t_ns)
                card.readings.append(reading)
    return found
