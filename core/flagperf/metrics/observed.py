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

import msgspec

from flagperf.event_files import Span
from flagperf.kinds import KINDS, Kind
from flagperf.messages import Message, message
from flagperf.metrics.entry import Absent, Record, absent
from flagperf.metrics.flops import ModelFacts, model_facts
from flagperf.metrics.node_record import NodeWindows
from flagperf.metrics.rank_record import RankLoop, RankRecord, RankWindow, invalid, maxima, sums
from flagperf.spec.job import Job
from flagperf.spec.manifest import Manifest
from flagperf.spec.values import flatten

if TYPE_CHECKING:
    from flagperf.metrics.entry import DeviceKey
    from flagperf.metrics.node_record import DeviceSamples, NodeRecord, Series
    from flagperf.metrics.rank_record import RankFile
    from flagperf.metrics.rows import MeasuredRow


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
        from flagperf.metrics.rank_record import rank_files, warmup_of

        return rank_files(self.record.ranks, self.kind, warmup_of(self.job, self.kind.values))

    @functools.cached_property
    def ranks(self) -> Sequence[RankRecord]:
        """Sorted by rank."""
        records = (file.record for file in self.rank_files if file.record is not None)
        return sorted(records, key=lambda record: record.rank)

    @functools.cached_property
    def nodes(self) -> Sequence[NodeRecord]:
        """What the probe of each node recorded."""
        from flagperf.metrics.node_record import node_records

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
        from flagperf.metrics.node_record import with_power
        from flagperf.metrics.rows import rated

        powers = {key: power for node in self.nodes for key, power in node.row_powers.items()}
        usable = (peak for peak in self.job.peaks if peak.confidence != "low" or self.job.accept_low_peaks)
        peaks = {peak.row: peak.value for peak in usable if peak.value > 0}
        return tuple(rated(with_power(row, rank.card, powers), peaks) for rank in self.ranks for row in rank.rows)

    @functools.cached_property
    def failure(self) -> Absent | None:
        """Why the ranks did not finish the job, or None if all succeeded."""
        from flagperf.metrics.rank_record import failure_of

        return failure_of(self.job, self.ranks)

    @functools.cached_property
    def loop(self) -> Loop | Absent:
        """The measured span of every rank."""

        return self.failure or loop_of(self.ranks)

    @functools.cached_property
    def window(self) -> Window | Absent:
        """The part of the loop after warm-up."""

        return window_of(self.loop)

    @property
    def unmeasured(self) -> Absent | None:
        """Why there is no measured window. A kind without steps is measured over its whole span."""
        found = self.window if self.kind.has_steps else self.loop
        return found if isinstance(found, Absent) else None

    @functools.cached_property
    def devices(self) -> dict[DeviceKey, DeviceSamples] | Absent:
        """The samples of every card."""
        from flagperf.metrics.node_record import device_samples

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
        from flagperf.metrics.node_record import series_of

        return self.unmeasured or series_of(self.job, self.nodes, field)


# Loop: the measured span of all ranks.


class Loop(msgspec.Struct, frozen=True):
    ranks: tuple[RankLoop, ...]
    """All have the same steps."""

    @property
    def first_step(self) -> int:
        return self.ranks[0].first_step

    @property
    def num_steps(self) -> int:
        """Including warm-up."""
        return self.ranks[0].num_steps

    @property
    def steps_kept(self) -> int:
        return self.ranks[0].steps_kept

    @property
    def steps_dropped(self) -> int:
        return self.ranks[0].steps_dropped


def loop_of(records: Sequence[RankRecord]) -> Loop | Absent:
    """Requires that all ranks succeeded."""
    loops: list[RankLoop] = []
    for record in records:
        if isinstance(record.loop, Absent):
            return record.loop
        loops.append(record.loop)
    return _unequal_steps(loops) or Loop(tuple(loops))


def _unequal_steps(loops: Sequence[RankLoop]) -> Absent | None:
    """An optimizer step involves all ranks, so all must have recorded the same steps."""
    first = loops[0]
    for loop in loops:
        if (loop.first_step, loop.num_steps) != (first.first_step, first.num_steps):
            steps, others = _numbers(loop), _numbers(first)
            return invalid(loop.rank, "loop.unequal_steps", steps=steps, other=first.rank, others=others)
    return None


def _numbers(loop: RankLoop) -> Message:
    if not loop.num_steps:
        return message("loop.no_steps")
    return message("loop.steps", first=loop.first_step, last=loop.first_step + loop.num_steps - 1)


def node_windows(records: Sequence[RankRecord]) -> NodeWindows:
    """Requires that all ranks have a loop."""
    found: dict[tuple[int, str], Span] = {}
    for record in records:
        assert isinstance(record.loop, RankLoop)
        key, own = (record.started.node_index, record.started.clock.boot_id), record.loop.window
        other = found.get(key, own)
        found[key] = Span(min(own.began_ns, other.began_ns), max(own.ended_ns, other.ended_ns))
    return found


# Window: what the published throughputs divide and divide by, over all ranks.


class Window(msgspec.Struct, frozen=True):
    """Over ranks, counts are summed and durations are the maximum."""

    ranks: tuple[RankWindow, ...]
    timing: tuple[str, ...]
    work: Mapping[str, Sequence[int]]
    """Amount of work -> its count in each kept step, summed over ranks."""
    step_computes_ns: Sequence[int]
    """Per kept step, the compute time of the slowest rank."""
    step_periods_ns: Sequence[int]
    """Per kept step, the period of the slowest rank."""

    @property
    def train_ns(self) -> int:
        return max(rank.train_ns for rank in self.ranks)

    @property
    def core_ns(self) -> int:
        return max(rank.core_ns for rank in self.ranks)

    @property
    def samples(self) -> int:
        return sum(self.per_step("samples"))

    @property
    def tokens(self) -> int:
        return sum(self.per_step("tokens"))

    @property
    def positions(self) -> int:
        """Token positions that the model computed, including padding."""
        return sum(self.positions_per_step)

    @property
    def positions_per_step(self) -> Sequence[int]:
        return sums([self.per_step("tokens"), self.per_step("padded_tokens")])

    def per_step(self, amount: str) -> Sequence[int]:
        """The count of an amount of work (a key of WORK) in each kept step, summed over ranks."""
        return self.work.get(amount) or [0] * len(self.step_computes_ns)


def window_of(loop: Loop | Absent) -> Window | Absent:
    if isinstance(loop, Absent):
        return loop
    if not loop.steps_kept:
        return absent("not_measured", "window.all_warmup", count=loop.steps_dropped)
    ranks: list[RankWindow] = []
    for rank in loop.ranks:
        if isinstance(rank.kept, Absent):
            return rank.kept
        ranks.append(rank.kept)
    amounts = dict.fromkeys(amount for rank in ranks for amount in rank.work)
    return Window(
        ranks=tuple(ranks),
        timing=tuple(sorted({rank.timing for rank in loop.ranks})),
        work={amount: sums(rank.work[amount] for rank in ranks if amount in rank.work) for amount in amounts},
        step_computes_ns=maxima(rank.computes_ns for rank in ranks),
        step_periods_ns=maxima(rank.periods_ns for rank in ranks),
    )
