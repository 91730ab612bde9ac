"""Metric: a value with its inputs, marks and confidence interval, or the reason why it is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from flagperf.events import EventFile
from flagperf.messages import Message

Reason = Literal["not_measured", "not_applicable", "run_failed", "invalid_telemetry", "unknown_peak", "unsupported"]
"""Why a value is absent, as a code. Pages print these codes."""

Mark = Literal[
    "oversubscribed",
    "busy_host",
    "medium_peak",
    "low_peak",
    "measured_peak",
    "unverified_mapping",
    "over_capacity",
    "telemetry_gap",
    "implausible_utilisation",
    "energy_mismatch",
    "whole_board",
    "torn_record",
]
"""A caveat that a formula adds to its value, as a code."""

Scope = Literal["job", "system", "device", "rank"]


class Interval(msgspec.Struct, frozen=True):
    low: float
    high: float
    method: str
    """A code in table [interval] of the message catalogue."""


class Metric(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    unit: str
    definition: str
    """The heading of its section in docs/metrics.md."""
    scope: Scope
    value: float | int | None = None
    reason: Reason | None = None
    detail: str = ""
    """What was observed, in English, if there is no value."""
    message: Message | None = None
    """`detail` as data."""
    marks: tuple[str, ...] = ()
    """Caveats as codes: those of its formula (Mark), and once it is shown also the names of plausibility's rules."""
    interval: Interval | None = None
    inputs: dict[str, Any] = {}
    """Inputs of the value that are not obvious from the events: N, peak, formula id, device id."""
    version: int = 1
    """Version of the formula that computed it."""


class Record(msgspec.Struct, frozen=True):
    """The raw files of a run. Those of ranks and nodes may be read while they are iterated over, one by one: together
    they need not fit into memory."""

    parent: EventFile
    ranks: Iterable[EventFile]
    samples: Iterable[EventFile]
