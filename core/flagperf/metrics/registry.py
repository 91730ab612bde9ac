"""Every metric there is, by name. A new one is one entry more in the module of its subject.

docs/metrics.md has a section for each; `make docs` writes its index from here.
"""

from __future__ import annotations

from flagperf.kinds import KINDS, Kind
from flagperf.metrics import host_load, inference, memory, mfu, power, quality, throughput, times
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.flops import FORMULAS
from flagperf.metrics.quality import quality_entry
from flagperf.spec import Manifest
from flagperf.spec.vocabulary import Vocabulary

_MODULES = (times, throughput, inference, mfu, memory, power, host_load, quality)

ENTRIES: dict[str, MetricEntry] = {entry.name: entry for module in _MODULES for entry in module.METRICS}

REMOVED: dict[str, str] = {}
"""Metrics of the past -> since which version of flagperf they are no longer made. Runs that have them still verify."""


def entries_of(manifest: Manifest) -> list[MetricEntry]:
    """What a run of the case is measured by: the metrics of its kind, then the case's qualities. A quality that a case
    calls `loss` takes the place of the loss of the last step."""
    qualities = {quality.name: quality_entry(quality) for quality in manifest.qualities}
    own = [entry for entry in kind_entries(KINDS[manifest.kind]) if entry.name not in qualities]
    return [*own, *qualities.values()]


def kind_entries(kind: Kind) -> list[MetricEntry]:
    return [entry for group in kind.metrics for entry in ENTRIES.values() if entry.group == group]


def entry_of(manifest: Manifest, name: str) -> MetricEntry | None:
    """By the name of a metric or of a quality of the case."""
    own = next((quality for quality in manifest.qualities if quality.name == name), None)
    return quality_entry(own) if own else ENTRIES.get(name)


def vocabulary() -> Vocabulary:
    """The names that a case.toml may use."""
    return Vocabulary(kinds=tuple(KINDS), metrics=tuple(ENTRIES), formulas=tuple(FORMULAS))
