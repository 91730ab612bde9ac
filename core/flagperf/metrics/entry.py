"""MetricEntry: the complete definition of one metric.

Columns and rows of pages, their labels, the names that case.toml may use, the index of docs/metrics.md and the metrics
that `runs verify` recomputes are derived from these entries. Each is defined below its formula; registry.py lists all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from flagperf import units
from flagperf.kinds.kind import Text
from flagperf.metrics.finding import Absent, Finding
from flagperf.metrics.metric import Mark, Metric, Scope
from flagperf.metrics.observed import Observed
from flagperf.spec import Manifest

Formula = Callable[[Observed], Finding]

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
