"""MetricEntry: the complete definition of one metric.

Columns and rows of pages, their labels, the names that case.toml may use, the index of docs/metrics.md and the metrics
that `runs verify` recomputes are derived from these entries. Each is defined below its formula; registry.py lists all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

from flagperf import units
from flagperf.event_files import EventFile
from flagperf.kinds import Text
from flagperf.messages import Message, has_text, message
from flagperf.spec.manifest import Manifest
from flagperf.stats import Interval

if TYPE_CHECKING:
    from flagperf.metrics.observed import Observed

# Metric: a value with its inputs, marks and confidence interval, or the reason why it is missing.


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


# Finding: the result of a formula, either a value or the reason why it is absent.


class Found(msgspec.Struct, frozen=True):
    value: float | int
    inputs: dict[str, Any] = {}
    interval: Interval | None = None
    marks: tuple[Mark, ...] = ()


class Absent(msgspec.Struct, frozen=True):
    reason: Reason
    message: Message
    """What was observed."""
    inputs: dict[str, Any] = {}

    @property
    def detail(self) -> str:
        """The message in English."""
        return str(self.message)


Finding = Union[Found, Absent]  # noqa: UP007  (an alias that 3.10 evaluates)


def absent(reason: Reason, code: str, /, **params: Any) -> Absent:
    return Absent(reason, message(code, **params))


NAMED_AT_MOST = 8


def named(kind: str, names: Sequence[object]) -> Message:
    """`rank 3`, `ranks 1, 2`, `ranks 0, 1, ... and 24 more`. `kind` is rank, node or device."""
    shown = [name if isinstance(name, int) else str(name) for name in names[:NAMED_AT_MOST]]
    rest = len(names) - NAMED_AT_MOST
    if rest > 0:
        return message(f"name.{kind}s_and_more", names=shown, more=rest)
    return message(f"name.{kind}s" if len(names) > 1 else f"name.{kind}", names=shown)


# How cards and what is missing of them are named.


DeviceKey = tuple[int, str]
"""Node index and device id. The id alone is ambiguous: PCI addresses of two nodes may be equal."""


def card_name(card: DeviceKey) -> Message:
    return message("name.of_node", what=named("device", [card[1]]), node=card[0])


def missing_words(text: str) -> Message | str:
    """A probe's reason for a missing figure: a code in table [missing] of the message catalogue, or free text."""
    return message(f"missing.{text}") if has_text(f"missing.{text}") else text


Formula = Callable[["Observed"], Finding]

SPEED: tuple[Mark, ...] = ("oversubscribed", "busy_host")

CARD: tuple[Mark, ...] = ("unverified_mapping",)


class MetricEntry(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    unit: str | Callable[[Manifest], str]
    """Unit of the recorded value."""
    scope: Scope
    group: str
    """A run has the metrics of the groups that the kind of its case lists."""
    formula: Formula
    version: int = 1
    """Incremented when the meaning of the value changes."""
    title: Text
    """Title of its row in the general table, and its name in sentences."""
    remark: Text = {}
    """Remark of that row. May use the fields {unit}, {formula}, {target} and {precisions} of the case."""
    head: str = ""
    """Head of its column, in all languages [default: its name]."""
    format: Callable[[Any], str] = units.setting
    """Formats the value for display."""
    shown_unit: str = ""
    """Unit of the formatted value, if it differs from `unit`."""
    marks: tuple[Mark, ...] = ()
    """Marks of the run that apply to this metric. `torn_record` applies to every metric."""
    heading: str = ""
    """Heading of its section in docs/metrics.md [default: its name]."""
    better: Literal["faster", "quicker", "higher", "lower"] | None = None
    """Which way is better, for the verdict of a comparison: `faster` and `higher` the higher value, `quicker` (a time)
    and `lower` the lower one. None: it is compared without a verdict."""
    noted: str = ""
    """The subject in a page's notes under which the metric is listed if it has a value; it is then on the run's card
    too. Empty for metrics that are shown elsewhere."""

    def unit_of(self, manifest: Manifest) -> str:
        return self.unit if isinstance(self.unit, str) else self.unit(manifest)

    def metric(self, finding: Finding, unit: str, run_marks: Collection[Mark] = ()) -> Metric:
        head = (self.name, unit, self.heading or self.name, self.scope)
        if isinstance(finding, Absent):
            return Metric(
                *head,
                reason=finding.reason,
                detail=finding.detail,
                message=finding.message,
                inputs=finding.inputs,
                version=self.version,
            )
        concerned = tuple(mark for mark in run_marks if mark in self.marks or mark == "torn_record")
        marks = tuple(dict.fromkeys(finding.marks + concerned))
        return Metric(
            *head,
            value=finding.value,
            marks=marks,
            interval=finding.interval,
            inputs=finding.inputs,
            version=self.version,
        )


def speed_entry(
    name: str, group: str, unit: Callable[[Manifest], str], formula: Formula, title: Text, remark: Text
) -> MetricEntry:
    """A throughput of the whole system."""
    return MetricEntry(
        name=name,
        unit=unit,
        group=group,
        scope="system",
        formula=formula,
        format=units.per_second,
        marks=SPEED,
        better="faster",
        title=title,
        remark=remark,
    )


def samples_per_second(manifest: Manifest) -> str:
    """The case's unit if it counts samples, else `samples/s`."""
    return manifest.sample_unit if manifest.counts == "samples" else "samples/s"


def work_per_second(manifest: Manifest) -> str:
    return manifest.sample_unit
