"""MetricEntry: all that is known of one metric, in one place.

Columns and rows of pages, their labels, the names that a case.toml may use, the index of docs/metrics.md and what
`runs verify` recomputes are derived from these entries. Each stands below its formula; registry.py lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

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
    """As the record has it."""
    scope: Scope
    group: str
    """Runs have the metrics of those groups that the kind of their case names."""
    formula: Formula
    version: int = 1
    """Moves with the meaning of the value. The formula before goes to `earlier`, so that old runs still verify."""
    earlier: dict[int, Formula] = {}
    title: Text
    """Of its row in a page's general table, and wherever it is named in words."""
    remark: Text = {}
    """Beside that row. May use {unit}, {formula}, {target} and {precisions} of the case."""
    head: str = ""
    """Of its column, in all languages [default: its name]."""
    format: Callable[[Any], str] = units.setting
    """How people read the value."""
    shown_unit: str = ""
    """Behind the formatted value, where that is not `unit`."""
    marks: tuple[Mark, ...] = ()
    """Marks of the run that concern this metric. `torn_record` concerns all."""
    heading: str = ""
    """Of its section in docs/metrics.md [default: its name]."""
    noted: str = ""
    """The subject among a page's notes, and on a terminal's card, where it is listed whenever it has a value. Empty for
    metrics that have another place."""

    def formula_of(self, version: int) -> Formula | None:
        return self.formula if version == self.version else self.earlier.get(version)

    def unit_of(self, manifest: Manifest) -> str:
        return self.unit if isinstance(self.unit, str) else self.unit(manifest)

    def metric(
        self, finding: Finding, unit: str, run_marks: Collection[Mark] = (), version: int | None = None
    ) -> Metric:
        head = (self.name, unit, self.heading or self.name, self.scope)
        version = self.version if version is None else version
        if isinstance(finding, Absent):
            return Metric(
                *head,
                reason=finding.reason,
                detail=finding.detail,
                message=finding.message,
                inputs=finding.inputs,
                version=version,
            )
        concerned = tuple(mark for mark in run_marks if mark in self.marks or mark == "torn_record")
        marks = tuple(dict.fromkeys(finding.marks + concerned))
        return Metric(
            *head, value=finding.value, marks=marks, interval=finding.interval, inputs=finding.inputs, version=version
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
        title=title,
        remark=remark,
    )


def samples_per_second(manifest: Manifest) -> str:
    """The case's own word for it, where that counts samples."""
    return manifest.sample_unit if manifest.counts == "samples" else "samples/s"


def work_per_second(manifest: Manifest) -> str:
    return manifest.sample_unit
