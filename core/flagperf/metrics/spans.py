"""Loop: the measured span of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.messages import Message, message
from flagperf.metrics.finding import Absent
from flagperf.metrics.rank_loop import RankLoop, invalid
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.series import NodeWindows
from flagperf.metrics.span import Span


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
