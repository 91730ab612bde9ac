"""Metric: a number with all that is needed to trust it, or the reason why there is none."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from flagperf.events import EventFile
from flagperf.messages import Message

Reason = Literal[
    "not_measured", "not_applicable", "withheld", "run_failed", "invalid_telemetry", "unknown_peak", "unsupported"
]
"""Why a value is absent. The codes that pages print."""

Mark = Literal[
    "oversubscribed",
    "busy_host",
    "medium_peak",
    "low_peak",
    "unverified_mapping",
    "over_capacity",
    "telemetry_gap",
    "implausible_utilisation",
    "energy_mismatch",
    "torn_record",
]
"""What a reader has to know about a value that is there."""

Scope = Literal["job", "system", "device", "rank"]


class Interval(msgspec.Struct, frozen=True):
    low: float
    high: float
    method: str
    """A code of the catalogue's table [interval]."""


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    unit: str
    definition: str
    """The heading of its section in docs/metrics.md."""
    scope: Scope
    value: float | int | None = None
    reason: Reason | None = None
    detail: str = ""
    """What was seen, in English, where there is no value."""
    message: Message | None = None
    """The same as data."""
    marks: tuple[Mark, ...] = ()
    interval: Interval | None = None
    inputs: dict[str, Any] = {}
    """What the value was made of, where that is more than the events say: N, peak, formula id, device id."""
    version: int = 1
    """Of the formula that gave it."""


class Record(msgspec.Struct, frozen=True):
    """All raw files of a run, as read."""

    parent: EventFile
    ranks: tuple[EventFile, ...]
    samples: tuple[EventFile, ...]
