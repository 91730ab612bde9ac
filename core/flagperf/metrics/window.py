"""Window: what the published throughputs divide and divide by, over all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from flagperf.metrics.columns import maxima, sums
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.rank_window import RankWindow
from flagperf.metrics.spans import Loop


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
