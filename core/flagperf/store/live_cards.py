"""The last figures of a node's cards, from the growing file of its probe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from flagperf.api import Device, Reading
from flagperf.events import ProbeFailed, ProbeStarted, Sampled
from flagperf.store.growing import GrowingFile

_SILENT_INTERVALS, _SILENT_SECONDS = 15, 10.0
"""Figures of cards that are older than both are not shown: the probe is silent."""


class CardFigures:
    """The last figures of a node's cards, for as long as its probe is not silent."""

    def __init__(self, samples: Path, devices: Sequence[Device], most_bytes: int | None = None) -> None:
        self._file = GrowingFile(samples, most_bytes)
        self._boards = {device.id: device.board for device in devices}
        self._is_power_of_board = False
        self._last: Sampled | None = None
        self._arrived_ns = 0
        self._silent_seconds = _SILENT_SECONDS

    def read(self) -> None:
        for event in self._file.new_events():
            if isinstance(event, Sampled) and not event.baseline:
                self._last, self._arrived_ns = event, time.monotonic_ns()
            elif isinstance(event, ProbeStarted):
                self._silent_seconds = max(_SILENT_SECONDS, _SILENT_INTERVALS * event.interval_seconds)
                self._is_power_of_board = "power_watts" in event.board_figures
            elif isinstance(event, ProbeFailed):
                self._last = None

    @property
    def used_bytes(self) -> int | None:
        """Of the card that uses most. Workers that are not there yet, or not any more, have no figure."""
        return max((reading.used_bytes or 0 for reading in self.readings), default=0) or None

    @property
    def power_watts(self) -> float | None:
        """Of all cards, each board counted once where its chips share a figure. None unless all were read."""
        watts: dict[str, float] = {}
        for reading in self.readings:
            if reading.power_watts is None:
                return None
            board = self._boards.get(reading.device_id) if self._is_power_of_board else None
            watts[board or reading.device_id] = reading.power_watts
        return sum(watts.values()) if watts else None

    @property
    def readings(self) -> Sequence[Reading]:
        """By when they arrived: the probe may be on another machine, whose clock says nothing here."""
        is_silent = time.monotonic_ns() > self._arrived_ns + round(self._silent_seconds * 1e9)
        return () if self._last is None or is_silent else self._last.readings
