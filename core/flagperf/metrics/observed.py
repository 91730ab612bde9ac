"""Observed: everything about a run that a formula may use. Shared intermediate results are computed lazily and
cached."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from flagperf.kinds import KINDS, Kind
from flagperf.metrics.finding import Absent
from flagperf.metrics.flops import ModelFacts, model_facts
from flagperf.metrics.metric import Record
from flagperf.metrics.ranks import RankRecord, failure_of, rank_records
from flagperf.metrics.samples import DeviceKey, DeviceSamples, device_samples
from flagperf.metrics.series import Series, node_windows, series_of
from flagperf.metrics.spans import Loop, loop_of
from flagperf.metrics.window import Window, window_of
from flagperf.spec import Job, Manifest, flatten


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
    def ranks(self) -> Sequence[RankRecord]:
        return rank_records(self.record.ranks, self.kind)

    @functools.cached_property
    def failure(self) -> Absent | None:
        """Why the ranks did not finish the job, or None if all succeeded."""
        return failure_of(self.job, self.ranks)

    @functools.cached_property
    def loop(self) -> Loop | Absent:
        """The measured span of every rank."""
        return self.failure or loop_of(self.job, self.kind, self.ranks)

    @functools.cached_property
    def window(self) -> Window | Absent:
        """The part of the loop after warm-up."""
        return window_of(self.loop)

    @functools.cached_property
    def devices(self) -> dict[DeviceKey, DeviceSamples] | Absent:
        """The samples of every card."""
        return device_samples(self.job, self.record.parent, self.record.samples)

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
        if isinstance(self.loop, Absent):
            return self.loop
        if isinstance(self.window, Absent):
            return self.window
        return series_of(self.job, self.record.samples, node_windows(self.ranks, self.loop), field)
