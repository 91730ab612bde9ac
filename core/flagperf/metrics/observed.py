"""Observed: everything about a run that a formula may use. Shared intermediate results are computed lazily and cached.

The files of ranks are read once, when the first formula asks for them, and so are those of nodes. Of each file, only a
summary is kept (RankRecord, NodeRecord), so the memory that a run needs does not grow with what its files hold but for
a few numbers per step.

What reads the files is imported when it is needed: listing cases imports this module.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flagperf.kinds import KINDS, Kind
from flagperf.metrics.finding import Absent
from flagperf.metrics.flops import ModelFacts, model_facts
from flagperf.metrics.metric import Record
from flagperf.spec import Job, Manifest, flatten

if TYPE_CHECKING:
    from flagperf.metrics.cards import DeviceKey
    from flagperf.metrics.nodes import NodeRecord
    from flagperf.metrics.ranks import RankFile, RankRecord
    from flagperf.metrics.rows import MeasuredRow
    from flagperf.metrics.samples import DeviceSamples
    from flagperf.metrics.series import Series
    from flagperf.metrics.span import Span
    from flagperf.metrics.spans import Loop
    from flagperf.metrics.window import Window


class Observed:
    def __init__(self, job: Job, manifest: Manifest, record: Record) -> None:
        self.job = job
        self.manifest = manifest
        self.record = record
        self._series: dict[str, Mapping[DeviceKey, Series] | Absent] = {}

    @property
    def kind(self) -> Kind:
        return KINDS[self.manifest.kind]

    @functools.cached_property
    def values(self) -> dict[str, Any]:
        """Dotted key -> value of the resolved configuration."""
        return dict(flatten(self.job.config.values))

    @functools.cached_property
    def rank_files(self) -> Sequence[RankFile]:
        from flagperf.metrics.rank_loop import warmup_of
        from flagperf.metrics.ranks import rank_files

        return rank_files(self.record.ranks, self.kind, warmup_of(self.job, self.kind.values))

    @functools.cached_property
    def ranks(self) -> Sequence[RankRecord]:
        """Sorted by rank."""
        records = (file.record for file in self.rank_files if file.record is not None)
        return sorted(records, key=lambda record: record.rank)

    @functools.cached_property
    def nodes(self) -> Sequence[NodeRecord]:
        """What the probe of each node recorded."""
        from flagperf.metrics.nodes import node_records
        from flagperf.metrics.spans import node_windows

        windows = {} if self.unmeasured else node_windows(self.ranks)
        rows: dict[DeviceKey, list[Span]] = {}
        for rank in self.ranks:
            rows.setdefault(rank.card, []).extend(row.window for row in rank.rows if row.window is not None)
        return node_records(self.job, self.record.parent, self.record.samples, windows, rows)

    @property
    def has_torn_file(self) -> bool:
        of_parent, of_ranks = self.record.parent.torn, any(file.torn for file in self.rank_files)
        return of_parent or of_ranks or any(node.torn for node in self.nodes)

    def read_files(self) -> None:
        """Read every file now. Raises BadInput if one is damaged."""
        _ = self.rank_files, self.nodes

    @functools.cached_property
    def rows(self) -> tuple[MeasuredRow, ...]:
        """Rows that the case measured besides steps: rank by rank, in the order of measurement."""
        from flagperf.metrics.row_power import with_power
        from flagperf.metrics.rows import rated

        powers = {key: power for node in self.nodes for key, power in node.row_powers.items()}
        usable = (peak for peak in self.job.peaks if peak.confidence != "low" or self.job.accept_low_peaks)
        peaks = {peak.row: peak.value for peak in usable if peak.value > 0}
        return tuple(rated(with_power(row, rank.card, powers), peaks) for rank in self.ranks for row in rank.rows)

    @functools.cached_property
    def failure(self) -> Absent | None:
        """Why the ranks did not finish the job, or None if all succeeded."""
        from flagperf.metrics.ranks import failure_of

        return failure_of(self.job, self.ranks)

    @functools.cached_property
    def loop(self) -> Loop | Absent:
        """The measured span of every rank."""
        from flagperf.metrics.spans import loop_of

        return self.failure or loop_of(self.ranks)

    @functools.cached_property
    def window(self) -> Window | Absent:
        """The part of the loop after warm-up."""
        from flagperf.metrics.window import window_of

        return window_of(self.loop)

    @property
    def unmeasured(self) -> Absent | None:
        """Why there is no measured window. A kind without steps is measured over its whole span."""
        found = self.window if self.kind.has_steps else self.loop
        return found if isinstance(found, Absent) else None

    @functools.cached_property
    def devices(self) -> dict[DeviceKey, DeviceSamples] | Absent:
        """The samples of every card."""
        from flagperf.metrics.nodes import device_samples

        return device_samples(self.job, self.record.parent, self.nodes)

    @functools.cached_property
    def model(self) -> ModelFacts | Absent:
        """The model that the case computed, as described by all ranks."""
        return model_facts(self.ranks)

    def series(self, field: str) -> Mapping[DeviceKey, Series] | Absent:
        """One figure of every card (a field of api.Reading) over time, with the measured window."""
        if field not in self._series:
            self._series[field] = self._find_series(field)
        return self._series[field]

    def _find_series(self, field: str) -> Mapping[DeviceKey, Series] | Absent:
        from flagperf.metrics.nodes import series_of

        return self.unmeasured or series_of(self.job, self.nodes, field)
