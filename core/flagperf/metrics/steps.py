"""Steps: the steps of one rank as columns of equal length. They exist only while the rank's file is read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.events import StepFinished


class Steps(msgspec.Struct, frozen=True):
    numbers: Sequence[int]
    began_ns: Sequence[int]
    ended_ns: Sequence[int]
    computes_ns: Sequence[int]
    waits_ns: Sequence[int]
    work: dict[str, Sequence[int]]
    """Amount of work (a key of WORK) -> its column, for those that a step has."""
    losses: Sequence[float | None]
    diverged: Sequence[int]
    """Not a column: the numbers of the steps that diverged."""

    def __len__(self) -> int:
        return len(self.numbers)


def steps_of(events: Sequence[StepFinished]) -> Steps:
    works = [step.work for step in events]
    return Steps(
        numbers=[step.step for step in events],
        began_ns=[step.began_ns for step in events],
        ended_ns=[step.t_ns for step in events],
        computes_ns=[step.compute_ns for step in events],
        waits_ns=[step.wait_ns for step in events],
        work={amount: [work.get(amount, 0) for work in works] for amount in sorted(set().union(*works))},
        losses=[step.loss for step in events],
        diverged=[step.step for step in events if step.diverged],
    )
