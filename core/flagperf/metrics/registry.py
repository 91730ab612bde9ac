"""All metrics by name. To add one, add an entry to METRICS of the module for its subject.

docs/metrics.md has a section for each; `make docs` writes its index from here.
"""

from __future__ import annotations

from flagperf.kinds import KINDS, Kind
from flagperf.metrics import host_load, inference, memory, mfu, power, quality, throughput, times
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.figures import figure_entry
from flagperf.metrics.flops import FORMULAS
from flagperf.metrics.quality import quality_entry
from flagperf.spec import Manifest
from flagperf.spec.vocabulary import Vocabulary

_MODULES = (times, throughput, inference, mfu, memory, power, host_load, quality)

ENTRIES: dict[str, MetricEntry] = {entry.name: entry for module in _MODULES for entry in module.METRICS}


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


def vocabulary() -> Vocabulary:
    """The names that case.toml may use."""
    return Vocabulary(kinds=tuple(KINDS), metrics=tuple(ENTRIES), formulas=tuple(FORMULAS))
