"""Computes all metrics of a run from its record."""

from __future__ import annotations

from flagperf.metrics.finding import Finding
from flagperf.metrics.host_load import is_busy_host
from flagperf.metrics.metric import Mark, Metric
from flagperf.metrics.observed import Observed
from flagperf.metrics.quality import target_entry
from flagperf.metrics.registry import entries_of
from flagperf.spec import Manifest


def compute_metrics(run: Observed) -> tuple[Metric, ...]:
    """Always the same metrics in the same order: those of the case's kind, its qualities, the target.

    Never raises for an incomplete record: a metric that cannot be computed has a reason instead of a value.
    """
    marks = run_marks(run)
    findings: dict[str, Finding] = {}
    metrics: list[Metric] = []
    for entry in (*entries_of(run.manifest), target_entry(findings)):
        findings[entry.name] = entry.formula(run)
        metrics.append(entry.metric(findings[entry.name], entry.unit_of(run.manifest), marks))
    return tuple(metrics)


def metric_versions(manifest: Manifest) -> dict[str, int]:
    """Give the version of the formula of every metric that a run of this case has."""
    return {entry.name: entry.version for entry in (*entries_of(manifest), target_entry({}))}


def run_marks(run: Observed) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    if run.job.oversubscribed:
        marks.append("oversubscribed")
    if is_busy_host(run):
        marks.append("busy_host")
    assigned = {(node.index, device.id) for node in run.job.nodes for device in node.devices}
    if any(rank.started.mapping == "none" or rank.card not in assigned for rank in run.ranks):
        marks.append("unverified_mapping")
    if run.has_torn_file:
        marks.append("torn_record")
    return tuple(marks)
