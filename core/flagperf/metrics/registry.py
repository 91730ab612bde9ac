"""All metrics by name. To add one, add an entry to METRICS of the module for its subject.

docs/metrics.md has a section for each; `make docs` writes its index from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from flagperf.kinds import KINDS, Kind
from flagperf.metrics import job_times, memory, mfu, power, quality, throughput
from flagperf.metrics.entry import Finding, Mark, Metric, MetricEntry
from flagperf.metrics.flops import FORMULAS
from flagperf.metrics.job_times import is_busy_host
from flagperf.metrics.observed import Observed
from flagperf.metrics.quality import quality_entry, target_entry
from flagperf.metrics.row_figures import figure_entry
from flagperf.spec.manifest import Manifest, RowFigure, Vocabulary

ENTRIES: dict[str, MetricEntry] = {
    entry.name: entry
    for entry in (
        *job_times.METRICS,
        *throughput.METRICS,
        *throughput.INFERENCE_METRICS,
        *mfu.METRICS,
        *memory.METRICS,
        *power.METRICS,
        *job_times.HOST_LOAD,
        *quality.METRICS,
    )
}


def entries_of(manifest: Manifest) -> list[MetricEntry]:
    """The metrics of a run of the case: those of its kind, then the case's own. A quality named `loss` replaces the
    loss of the last step."""
    qualities = {quality.name: quality_entry(quality) for quality in manifest.qualities}
    own = [entry for entry in kind_entries(KINDS[manifest.kind]) if entry.name not in qualities]
    return [*own, *qualities.values(), *map(figure_entry, manifest.figures)]


def kind_entries(kind: Kind) -> list[MetricEntry]:
    return [entry for group in kind.metrics for entry in ENTRIES.values() if entry.group == group]


def entry_of(manifest: Manifest, name: str) -> MetricEntry | None:
    """Look up a metric, a quality or a figure of the case by name."""
    own = [quality_entry(quality) for quality in manifest.qualities if quality.name == name]
    own += [figure_entry(figure) for figure in manifest.figures if figure.name == name]
    return own[0] if own else ENTRIES.get(name)


BESIDE_SPEED = ("mem_used", "power_mean", "energy_per_sample", "energy_per_token")
"""Main metrics of every kind, besides its headlines, its speeds and what the case itself reports."""


def headline_names(kind: str, figures: Iterable[RowFigure], columns: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the main figures of a case, the most important one first. Where the page of the case has
    some of them as `columns`, return only these."""
    known = KINDS[kind].headline if kind in KINDS else ()
    names = (*known, *(figure.name for figure in figures if figure.headline))
    return tuple(name for name in names if name in columns) or names


def main_entries(manifest: Manifest) -> list[MetricEntry]:
    """Return the metrics to show first: headlines, speeds, memory, energy, and the case's own."""
    entries = {entry.name: entry for entry in entries_of(manifest)}
    summary = [entries[name] for name in KINDS[manifest.kind].summary if name in entries]
    speeds = [entry.name for entry in summary if entry.better == "faster"]
    headlines = headline_names(manifest.kind, manifest.figures)
    named = dict.fromkeys((*headlines, *speeds, "e2e_time", *BESIDE_SPEED, *manifest.own_metrics))
    return [entries[name] for name in named if name in entries]


def vocabulary() -> Vocabulary:
    """The names that case.toml may use."""
    return Vocabulary(kinds=tuple(KINDS), metrics=tuple(ENTRIES), formulas=tuple(FORMULAS))


# Computes all metrics of a run from its record.


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
