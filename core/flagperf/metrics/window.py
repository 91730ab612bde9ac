"""Window: the durations that the published throughputs divide by. A record whose durations do not nest is rejected."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import msgspec

from flagperf.events import StepFinished
from flagperf.messages import message
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.spans import Loop, RankLoop, Span

DRIFT = 1e-3
"""Maximum relative drift between the clocks of device and host. Crystals drift by about 20 ppm, so a larger difference
is not drift."""

ROUNDING_NS = 1000
"""Tolerance for the resolution of device timing events, which is below a microsecond."""


class RankWindow(msgspec.Struct, frozen=True):
    """`core_ns <= train_ns <= whole_ns`."""

    rank: int
    whole_ns: int
    train_ns: int
    core_ns: int
    wait_ns: int
    kept: tuple[StepFinished, ...]
    periods_ns: tuple[int, ...]
    """Per kept step: from the end of the previous step to the end of this one, without evaluation and logging."""


class Window(msgspec.Struct, frozen=True):
    """Over ranks, counts are summed and durations are the maximum."""

    ranks: tuple[RankWindow, ...]
    timing: tuple[str, ...]

    @property
    def train_ns(self) -> int:
        return max(rank.train_ns for rank in self.ranks)

    @property
    def core_ns(self) -> int:
        return max(rank.core_ns for rank in self.ranks)

    @property
    def samples(self) -> int:
        return sum(self.per_step(lambda step: step.samples))

    @property
    def tokens(self) -> int:
        return sum(self.per_step(lambda step: step.tokens))

    @property
    def positions(self) -> int:
        """Token positions that the model computed, including padding."""
        return sum(self.per_step(lambda step: step.tokens + step.padded_tokens))

    def per_step(self, count: Callable[[StepFinished], int]) -> list[int]:
        """A count per kept step, summed over ranks."""
        return [sum(map(count, steps)) for steps in zip(*(rank.kept for rank in self.ranks), strict=True)]

    @property
    def step_computes_ns(self) -> list[int]:
        """Per kept step, the compute time of the slowest rank."""
        return [max(step.compute_ns for step in steps) for steps in zip(*(r.kept for r in self.ranks), strict=True)]

    @property
    def step_periods_ns(self) -> list[int]:
        """Per kept step, the period of the slowest rank."""
        return [max(periods) for periods in zip(*(rank.periods_ns for rank in self.ranks), strict=True)]


def window_of(loop: Loop | Absent) -> Window | Absent:
    if isinstance(loop, Absent):
        return loop
    if not loop.steps_kept:
        return absent("not_measured", "window.all_warmup", count=loop.steps_dropped)
    ranks: list[RankWindow] = []
    for rank in loop.ranks:
        window = _rank_window(rank)
        problem = _overlap(rank) or _broken_nesting(window, sum(step.compute_ns for step in rank.kept))
        if problem:
            return problem
        ranks.append(window)
    return Window(tuple(ranks), tuple(sorted({rank.timing for rank in loop.ranks})))


def _rank_window(rank: RankLoop) -> RankWindow:
    train_ns = rank.window.length_ns - sum(pause.length_ns for pause in rank.pauses)
    return RankWindow(
        rank=rank.rank,
        whole_ns=rank.window.length_ns,
        train_ns=train_ns,
        core_ns=min(train_ns, sum(step.compute_ns for step in rank.kept)),
        wait_ns=sum(step.wait_ns for step in rank.kept),
        kept=rank.kept,
        periods_ns=_periods_ns(rank),
    )


def _periods_ns(rank: RankLoop) -> tuple[int, ...]:
    moments = [rank.window.began_ns, *(step.t_ns for step in rank.kept)]
    paused = _paused_until(rank.pauses, moments)
    running = [moment - pause for moment, pause in zip(moments, paused, strict=True)]
    return tuple(later - earlier for earlier, later in pairwise(running))


def _paused_until(pauses: Sequence[Span], moments: Sequence[int]) -> list[int]:
    """For each moment, the total time paused before it."""
    began = [pause.began_ns for pause in pauses]
    before = [0, *accumulate(pause.length_ns for pause in pauses)]
    paused: list[int] = []
    for moment in moments:
        index = bisect_right(began, moment)
        not_yet = max(0, pauses[index - 1].ended_ns - moment) if index else 0
        paused.append(before[index] - not_yet)
    return paused


def _overlap(rank: RankLoop) -> Absent | None:
    for earlier, later in pairwise(rank.pauses):
        if later.began_ns < earlier.ended_ns:
            moments = {"began": later.began_ns, "ended": earlier.ended_ns}
            return absent("invalid_telemetry", "window.pauses_overlap", rank=rank.rank, **moments)
    return None


def _broken_nesting(window: RankWindow, compute_ns: int) -> Absent | None:
    parts = message("window.parts", whole=window.whole_ns, train=window.train_ns)
    for code, part_ns in (("window.compute_too_long", compute_ns), ("window.wait_too_long", window.wait_ns)):
        if part_ns > window.train_ns * (1 + DRIFT) + ROUNDING_NS:
            return absent("invalid_telemetry", code, rank=window.rank, part=part_ns, parts=parts)
    if window.core_ns <= 0:
        return absent("invalid_telemetry", "window.no_compute", rank=window.rank, part=compute_ns, parts=parts)
    return None
