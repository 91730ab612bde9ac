"""Observed: everything about a run that a formula may use. Shared intermediate results are computed lazily and cached.

The files of ranks are read once, when the first formula asks for them, and so are those of nodes. Of each file, only a
summary is kept (RankRecord, NodeRecord), so the memory that a run needs does not grow with what its files hold but for
a few numbers per step.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flagperf.event_files import Span
from flagperf.kinds import KINDS, Kind
from flagperf.metrics.entry import Absent, DeviceKey, Finding, Found, Record, absent
from flagperf.metrics.flops import ModelFacts, model_facts
from flagperf.metrics.node_record import (
    DeviceSamples,
    NodeRecord,
    Series,
    device_samples,
    read_nodes,
    series_of,
    with_power,
)
from flagperf.metrics.rank_record import RankRecord, Steps, failure_of, maxima, read_rank, sums, unequal_steps
from flagperf.metrics.rows import MeasuredRow, asked_percentiles, rated
from flagperf.spec.job import Job
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten
from flagperf.stats import batch_means
from flagperf.units import SECOND_NS


class Window(msgspec.Struct, frozen=True):
    """The loops of all ranks after warm-up: what the published throughputs divide, and divide by."""

    ranks: tuple[Steps, ...]
    timing: str
    work: Mapping[str, Sequence[int]]
    """Amount of work (a key of WORK) -> its count in each step, summed over ranks."""
    compute_ns: Sequence[int]
    """Of each step, the compute time of the slowest rank."""
    period_ns: Sequence[int]
    """Of each step, the period of the slowest rank."""

    @property
    def whole_ns(self) -> list[int]:
        """Return the time of each rank, like `train_ns` and `core_ns`."""
        return [rank.window.length_ns for rank in self.ranks]

    @property
    def train_ns(self) -> list[int]:
        return [rank.train_ns for rank in self.ranks]

    @property
    def core_ns(self) -> list[int]:
        return [rank.core_ns for rank in self.ranks]

    def per_step(self, amount: str) -> Sequence[int]:
        """Return the count of an amount of work (a key of WORK) in each step, summed over ranks."""
        return self.work.get(amount) or [0] * len(self.compute_ns)

    @property
    def samples(self) -> Sequence[int]:
        return self.per_step("samples")

    @property
    def tokens(self) -> Sequence[int]:
        return self.per_step("tokens")

    @property
    def positions(self) -> Sequence[int]:
        """Return the token positions that the model computed in each step, including padding."""
        return sums([self.per_step("tokens"), self.per_step("padded_tokens")])

    def rate(
        self,
        counts: Sequence[int],
        rank_ns: Sequence[int],
        step_ns: Sequence[int] = (),
        num_devices: int = 1,
        **inputs: Any,
    ) -> Finding:
        """Return work per second, of one of so many devices. `counts` is the work of each step, `rank_ns` the time of
        each rank, of which the longest decides, and `step_ns` the time of each step, for the confidence interval."""
        if not any(counts):
            return absent("not_measured", "throughput.no_samples")
        longest = rank_ns.index(max(rank_ns))
        count, seconds = sum(counts), rank_ns[longest] / SECOND_NS
        value = count / seconds / num_devices
        interval = batch_means(value, counts, step_ns) if step_ns else None
        return Found(value, {"count": count, "seconds": seconds, "rank": self.ranks[longest].rank, **inputs}, interval)


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
    def _rank_files(self) -> list[tuple[RankRecord | None, bool]]:
        """The record of each file, if its worker had started, and whether the file is torn."""
        warmup_steps = self.values.get(f"{self.kind.values}.warmup_steps", 0)
        asked = asked_percentiles(self.manifest.figures)
        return [(read_rank(file, self.kind, warmup_steps, asked), file.torn) for file in self.record.ranks]

    @functools.cached_property
    def ranks(self) -> Sequence[RankRecord]:
        """Sorted by rank."""
        return sorted((record for record, _ in self._rank_files if record is not None), key=lambda record: record.rank)

    @functools.cached_property
    def nodes(self) -> Sequence[NodeRecord]:
        """What the probe of each node recorded, with series over the measured window of the node, from the earliest
        start of a rank's window to the latest end."""
        windows: dict[tuple[int, str], Span] = {}
        rows: dict[DeviceKey, list[Span]] = {}
        for rank in self.ranks:
            rows.setdefault(rank.card, []).extend(row.window for row in rank.rows if row.window is not None)
            if self.unmeasured is None and isinstance(rank.steps, Steps):
                key, own = (rank.started.node_index, rank.started.clock.boot_id), rank.steps.window
                other = windows.get(key, own)
                windows[key] = Span(min(own.began_ns, other.began_ns), max(own.ended_ns, other.ended_ns))
        return read_nodes(self.job, self.record.parent, self.record.samples, windows, rows)

    @property
    def has_torn_file(self) -> bool:
        of_ranks = any(torn for _, torn in self._rank_files)
        return self.record.parent.torn or of_ranks or any(node.torn for node in self.nodes)

    def read_files(self) -> None:
        """Read every file now. Raises BadInput if one is damaged."""
        _ = self.ranks, self.nodes

    @functools.cached_property
    def rows(self) -> tuple[MeasuredRow, ...]:
        """Rows that the case measured besides steps: rank by rank, in the order of measurement."""
        powers = {key: power for node in self.nodes for key, power in node.row_powers.items()}
        usable = (peak for peak in self.job.peaks if peak.confidence != "low" or self.job.accept_low_peaks)
        peaks = {peak.row: peak.value for peak in usable if peak.value > 0}
        return tuple(rated(with_power(row, rank.card, powers), peaks) for rank in self.ranks for row in rank.rows)

    @functools.cached_property
    def failure(self) -> Absent | None:
        """Why the ranks did not finish the job, or None if all succeeded."""
        return failure_of(self.job, self.ranks)

    @functools.cached_property
    def steps(self) -> tuple[Steps, ...] | Absent:
        """The measured loop of every rank. All have the same steps."""
        if self.failure:
            return self.failure
        found: list[Steps] = []
        for record in self.ranks:
            if isinstance(record.steps, Absent):
                return record.steps
            found.append(record.steps)
        return unequal_steps(found) or tuple(found)

    @functools.cached_property
    def window(self) -> Window | Absent:
        """The part of the loop after warm-up. A job without steps after warm-up has none."""
        ranks = self.steps
        if isinstance(ranks, Absent):
            return ranks
        if not ranks[0].num_kept:
            return absent("not_measured", "window.all_warmup", count=ranks[0].dropped)
        problem = next((rank.problem for rank in ranks if rank.problem is not None), None)
        if problem is not None:
            return problem
        amounts = dict.fromkeys(amount for rank in ranks for amount in rank.work)
        return Window(
            ranks=ranks,
            timing=", ".join(sorted({record.started.timing for record in self.ranks})),
            work={amount: sums(rank.work[amount] for rank in ranks if amount in rank.work) for amount in amounts},
            compute_ns=maxima(rank.compute_ns for rank in ranks),
            period_ns=maxima(rank.period_ns for rank in ranks),
        )

    @property
    def unmeasured(self) -> Absent | None:
        """Why there is no measured window. A kind without steps is measured over its whole loop."""
        found = self.window if self.kind.has_steps else self.steps
        return found if isinstance(found, Absent) else None

    @functools.cached_property
    def devices(self) -> dict[DeviceKey, DeviceSamples] | Absent:
        """The samples of every card."""
        return device_samples(self.job, self.record.parent, self.nodes)

    @functools.cached_property
    def model(self) -> ModelFacts | Absent:
        """The model that the case computed, as described by all ranks."""
        return model_facts(self.ranks)

    def series(self, field: str) -> Mapping[DeviceKey, Series] | Absent:
        """One figure of every card (a field of api.Reading) over time, with the measured window."""
        if field not in self._series:
            self._series[field] = self.unmeasured or series_of(self.job, self.nodes, field)
        return self._series[field]
