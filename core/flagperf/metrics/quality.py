"""Quality of the result: losses of steps, values that the case reports, and whether its target was reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flagperf import units
from flagperf.metrics.entry import Absent, Finding, Found, MetricEntry, absent, named
from flagperf.metrics.observed import Observed
from flagperf.metrics.throughput import of_loop
from flagperf.spec.manifest import Manifest, Quality

if TYPE_CHECKING:
    from flagperf.metrics.observed import Loop
    from flagperf.metrics.rank_record import RankRecord


def loss(loop: Loop) -> Finding:
    """Loss of the last step."""
    return _loss_of(loop, loop.num_steps - 1)


def loss_first(loop: Loop) -> Finding:
    return _loss_of(loop, 0)


def _loss_of(loop: Loop, index: int) -> Finding:
    return global_loss(loop, index) if loop.num_steps else absent("not_measured", "quality.no_step")


def global_loss(loop: Loop, index: int) -> Finding:
    """Loss of one step: the mean over all real samples of all ranks. Ranks without samples are ignored."""
    number = loop.first_step + index
    counted = [
        (rank, one.losses[index], one.samples[index]) for rank, one in enumerate(loop.ranks) if one.samples[index]
    ]
    silent = [rank for rank, loss, _ in counted if not math.isfinite(loss)]
    if silent or not counted:
        return _no_loss(loop, number, silent)
    total = sum((loss or 0.0) * samples for _, loss, samples in counted)
    samples = sum(samples for _, _, samples in counted)
    return Found(total / samples, {"step": number, "samples": samples})


def _no_loss(loop: Loop, number: int, silent: Sequence[int]) -> Absent:
    if any(number in rank.diverged for rank in loop.ranks):
        return absent("not_measured", "quality.diverged", step=number)
    if not silent:
        return absent("not_measured", "quality.no_loss_anywhere", step=number)
    return absent("not_measured", "quality.no_loss", step=number, who=named("rank", silent))


def quality(wanted: Quality, run: Observed) -> Finding:
    """The last value that rank 0 reported."""
    if run.failure is not None:
        return run.failure
    reports = [report for record in run.ranks if record.rank == 0 for report in record.reports]
    report = next((report for report in reversed(reports) if wanted.name in report.values), None)
    if report is None:
        return absent("not_measured", "quality.not_reported", name=wanted.name)
    value = report.values[wanted.name]
    low = -math.inf if wanted.minimum is None else wanted.minimum
    high = math.inf if wanted.maximum is None else wanted.maximum
    if not (math.isfinite(value) and low <= value <= high):
        limits = {"low": f"{low:g}", "high": f"{high:g}"}
        return absent("invalid_telemetry", "quality.out_of_range", name=wanted.name, value=str(value), **limits)
    evaluated = report.values.get("evaluated")
    rows = {} if evaluated is None else {"evaluated": int(evaluated)}
    inputs = {"definition": wanted.definition, "step": report.step, **rows, **_parts(wanted.name, run.ranks)}
    return Found(value, inputs)


def _parts(name: str, ranks: Sequence[RankRecord]) -> dict[str, dict[str, dict[str, float]]]:
    """The parts of the value, for each breakdown that rank 0 reported. The last report counts."""
    reported = [parts for record in ranks if record.rank == 0 for parts in record.parts if parts.name == name]
    return {"parts": {parts.by: parts.values for parts in reported}} if reported else {}


def target(run: Observed, findings: Mapping[str, Finding]) -> Finding:
    """1 if the value reaches the target, else 0. Lower is better for losses, higher for all other values."""
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
    reached = finding.value <= goal if _falls(manifest, name) else finding.value >= goal
    return Found(int(reached), {"metric": name, "target": goal, "got": finding.value})


def _falls(manifest: Manifest, name: str) -> bool:
    formats = {entry.name: entry.format for entry in manifest.qualities}
    return formats.get(name, name) in ("loss", "loss_first")


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
        remark={"en": _literal(wanted.definition)},
        heading="quality",
    )


def _literal(text: str) -> str:
    """Escape braces, so that the remark has no fields."""
    return text.replace("{", "{{").replace("}", "}}")


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
        formula=of_loop(loss),
        format=units.loss,
        title={"en": "Loss", "zh": "训练损失"},
        remark={"en": "training loss of the last step", "zh": "训练最后一步的损失"},
    ),
    MetricEntry(
        name="loss_first",
        unit="",
        group="losses",
        scope="system",
        formula=of_loop(loss_first),
        format=units.loss,
        title={"en": "Loss of the first step", "zh": "首步训练损失"},
    ),
)
