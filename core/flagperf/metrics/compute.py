"""Computes all metrics of a run from its record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.finding import Absent, Finding, absent
from flagperf.metrics.host_load import is_busy_host
from flagperf.metrics.metric import Mark, Metric
from flagperf.metrics.observed import Observed
from flagperf.metrics.quality import target_entry
from flagperf.metrics.registry import entries_of, entry_of
from flagperf.spec import Manifest

TARGET = "target"


def compute_metrics(run: Observed) -> tuple[Metric, ...]:
    """Always the same metrics in the same order: those of the case's kind, its qualities, the target.

    Never raises for an incomplete record: a metric that cannot be computed has a reason instead of a value.
    """
    return recompute_metrics(run, metric_versions(run.manifest))


def metric_versions(manifest: Manifest) -> dict[str, int]:
    """Metric -> current formula version, for all metrics of a run of this case."""
    return {**{entry.name: entry.version for entry in entries_of(manifest)}, TARGET: target_entry({}).version}


def recompute_metrics(run: Observed, versions: Mapping[str, int]) -> tuple[Metric, ...]:
    """Compute each metric with the requested formula version. Metrics without such a formula are omitted."""
    manifest = run.manifest
    marks = run_marks(run)
    findings: dict[str, Finding] = {}
    metrics: list[Metric] = []
    for entry, version in _known(manifest, versions, findings):
        formula = entry.formula_of(version)
        if formula is not None:
            findings[entry.name] = _of_another_kind(run, entry) or formula(run)
            metrics.append(entry.metric(findings[entry.name], entry.unit_of(manifest), marks, version))
    return tuple(metrics)


def _known(
    manifest: Manifest, versions: Mapping[str, int], findings: Mapping[str, Finding]
) -> Iterable[tuple[MetricEntry, int]]:
    for name, version in versions.items():
        entry = target_entry(findings) if name == TARGET else entry_of(manifest, name)
        if entry is not None:
            yield entry, version


def _of_another_kind(run: Observed, entry: MetricEntry) -> Absent | None:
    """Runs of schema 1 have the metrics of all kinds; those of other kinds do not apply."""
    is_own = entry.group in (*run.kind.metrics, "quality")
    return None if is_own else absent("not_applicable", "kind.not_measured", kind=run.kind.name)


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
