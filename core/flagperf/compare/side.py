"""Side: what is compared. A group of runs, of which the run is the unit, or a published result."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from flagperf.spec import Manifest, PublishedResult
from flagperf.store.run import RecordedRun, Run

SEED = "training.seed"
"""Repeats may differ in it."""


class Side(msgspec.Struct, frozen=True):
    letter: str
    """What it is called in tables: the baseline is A."""
    word: str
    """How the user named it."""
    runs: tuple[RecordedRun, ...] = ()
    """With results, in the order of running."""
    left_out: tuple[Run, ...] = ()
    """Without results; or with, where the other run of the pair has none."""
    reference: PublishedResult | None = None
    manifest: Manifest | None = None
    """Of a reference."""

    @property
    def case(self) -> Manifest:
        """Of the newest run."""
        if self.manifest is not None:
            return self.manifest
        return self.runs[-1].run.manifest

    @property
    def is_simulated(self) -> bool:
        return any(recorded.run.simulated for recorded in self.runs)


def whole_pairs(sides: Sequence[Side]) -> list[Side]:
    """Two sides that took turns, without the runs whose pair is not whole: values and their ratio are of the same runs.
    Other sides as they are."""
    pairs = pairs_of(*sides) if len(sides) == 2 else []
    if not pairs:
        return list(sides)
    return [_only(side, {pair[index].id for pair in pairs}) for index, side in enumerate(sides)]


def _only(side: Side, ids: Set[str]) -> Side:
    kept = tuple(recorded for recorded in side.runs if recorded.run.id in ids)
    others = tuple(recorded.run for recorded in side.runs if recorded.run.id not in ids)
    return msgspec.structs.replace(side, runs=kept, left_out=(*side.left_out, *others))


def pairs_of(baseline: Side, other: Side) -> list[tuple[Run, Run]]:
    """Neighbouring runs of two settings that took turns (`run --interleave-with`). Empty for sides that did not."""
    ours, others = _by_turn(baseline), _by_turn(other)
    return [(ours[turn], others[turn]) for turn in ours if turn in others]


def _by_turn(side: Side) -> dict[tuple[str, int], Run]:
    """Group and number of the pair -> run. Empty if one of the runs is of no such group."""
    runs = [recorded.run for recorded in side.runs]
    found = {(run.group.id, run.group.pair): run for run in runs if run.group is not None and run.group.arm}
    return found if len(found) == len(runs) else {}
