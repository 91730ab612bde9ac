"""Quality of the result: losses of steps, values that the case reports, and whether its target was reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flagperf import units
from flagperf.metrics.entry import Absent, Finding, Found, MetricEntry, absent, named
from flagperf.metrics.observed import Observed
from flagperf.metrics.rank_record import Steps
from flagperf.spec.manifest import Quality


def loss(run: Observed) -> Finding:
    """Return the loss of the last step."""
    return loss_at(run, -1)


def loss_first(run: Observed) -> Finding:
    return loss_at(run, 0)


def loss_at(run: Observed, place: int) -> Finding:
    if isinstance(run.steps, Absent):
        return run.steps
    num_steps = run.steps[0].num_steps
    return global_loss(run.steps, place % num_steps) if num_steps else absent("not_measured", "quality.no_step")


def global_loss(ranks: Sequence[Steps], index: int) -> Finding:
    """Return the loss of one step: the mean over all real samples of all ranks. Ranks without samples are ignored."""
    number = ranks[0].first + index
    counted = [(rank, one.losses[index], one.samples[index]) for rank, one in enumerate(ranks) if one.samples[index]]
    silent = [rank for rank, loss, _ in counted if not math.isfinite(loss)]
    if counted and not silent:
        total = sum(loss * samples for _, loss, samples in counted)
        samples = sum(samples for _, _, samples in counted)
        return Found(total / samples, {"step": number, "samples": samples})
    if any(number in rank.diverged for rank in ranks):
        return absent("not_measured", "quality.diverged", step=number)
    if not silent:
        return absent("not_measured", "quality.no_loss_anywhere", step=number)
    return absent("not_measured", "quality.no_loss", step=number, who=named("rank", silent))


def quality(wanted: Quality, run: Observed) -> Finding:
    """Return the last value that the case reported. Records have the reports of rank 0 only."""
    if run.failure is not None:
        return run.failure
    reports = [report for record in run.ranks for report in record.reports]
    report = next((report for report in reversed(reports) if wanted.name in report.values), None)
    if report is None:
        return absent("not_measured", "quality.not_reported", name=wanted.name)
    value = report.values[wanted.name]
    low = -math.inf if wanted.minimum is None else wanted.minimum
    high = math.inf if wanted.maximum is None else wanted.maximum
    if not (math.isfinite(value) and low <= value <= high):
        limits = {"low": f"{low:g}", "high": f"{high:g}"}
        return absent("invalid_telemetry", "quality.out_of_range", name=wanted.name, value=str(value), **limits)
    inputs: dict[str, Any] = {"definition": wanted.definition, "step": report.step}
    if "evaluated" in report.values:
        inputs["evaluated"] = int(report.values["evaluated"])
    parts = [parts for record in run.ranks for parts in record.parts if parts.name == wanted.name]
    if parts:  # of each breakdown, the last report counts
        inputs["parts"] = {each.by: each.values for each in parts}
    return Found(value, inputs)


def target(run: Observed, findings: Mapping[str, Finding]) -> Finding:
    """Return 1 if the value reaches the target, else 0. Lower is better for losses, higher for all other values."""
    manifest = run.manifest
    if manifest.target is None:
        return absent("not_applicable", "quality.no_target")
    name, key = manifest.target.metric, manifest.target.key
    goal = run.values.get(key)
    if isinstance(goal, bool) or not isinstance(goal, int | float):
        return absent("not_measured", "quality.no_number", key=key)
    finding = findings.get(name) or absent("not_measured", "quality.no_such_metric", case=manifest.name)
    if isinstance(finding, Absent):
        inputs = {"metric": name, "target": goal}
        why = absent(finding.reason, "quality.target_without_value", metric=name, why=finding.message)
        return Absent(why.reason, why.message, inputs)
    formats = {entry.name: entry.format for entry in manifest.qualities}
    falls = formats.get(name, name) in ("loss", "loss_first")
    reached = finding.value <= goal if falls else finding.value >= goal
    return Found(int(reached), {"metric": name, "target": goal, "got": finding.value})


FORMATS = {
    "fraction": units.fraction,
    "loss": units.loss,
    "one_decimal": units.one_decimal,
    "count": units.count,
}
"""Formats that a case can declare for its qualities."""


def quality_entry(wanted: Quality) -> MetricEntry:
    return MetricEntry(
        name=wanted.name,
        unit=wanted.unit,
        group="quality",
        scope="job",
        formula=lambda run: quality(wanted, run),
        format=FORMATS[wanted.format],
        title={"en": wanted.name},
        remark={"en": wanted.definition.replace("{", "{{").replace("}", "}}")},  # it has no fields
        heading="quality",
    )


def target_entry(findings: Mapping[str, Finding]) -> MetricEntry:
    """Computed last, because it judges the findings of the case's qualities."""
    return MetricEntry(
        name="target",
        unit="",
        group="quality",
        scope="job",
        formula=lambda run: target(run, findings),
        format=units.count,
        title={"en": "Target reached", "zh": "是否达到目标"},
    )


METRICS = (
    MetricEntry(
        name="loss",
        unit="",
        group="losses",
        scope="system",
        formula=loss,
        format=units.loss,
        title={"en": "Loss", "zh": "训练损失"},
        remark={"en": "training loss of the last step", "zh": "训练最后一步的损失"},
    ),
    MetricEntry(
        name="loss_first",
        unit="",
        group="losses",
        scope="system",
        formula=loss_first,
        format=units.loss,
        title={"en": "Loss of the first step", "zh": "首步训练损失"},
    ),
)
