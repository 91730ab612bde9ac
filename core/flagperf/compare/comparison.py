"""compare: from sides to a comparison. No disk, no clock; what is shown is in report."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flagperf.compare.conditions import Difference, differences
from flagperf.compare.figures import Figure, Rules, figures
from flagperf.compare.limits import Judgement, Limit, check_limits, judge_limits
from flagperf.compare.obstacles import obstacles, refuse_mixture, refuse_other_cases
from flagperf.compare.rows import RowComparison, compare_rows
from flagperf.compare.side import Side, pairs_of, whole_pairs
from flagperf.compare.steps import InsideRuns, inside_runs
from flagperf.compare.verdict import MARGIN
from flagperf.errors import BadInput
from flagperf.kinds import KINDS
from flagperf.messages import Message


class Comparison(msgspec.Struct, frozen=True):
    sides: tuple[Side, ...]
    """The first is the baseline."""
    obstacles: dict[str, tuple[Message, ...]]
    """Letter of a side -> why it cannot be compared with the baseline."""
    differences: tuple[Difference, ...]
    figures: tuple[Figure, ...]
    rows: RowComparison
    margin: float
    """The least that is used."""
    paired: tuple[str, ...] = ()
    """Letters of sides that took turns with the baseline."""
    limits: tuple[Judgement, ...] = ()
    inside: InsideRuns | None = None
    """Of one run against one."""


def compare(
    sides: Sequence[Side], margin: float = MARGIN, limits: Sequence[Limit] = (), steps: Sequence[Sequence[float]] = ()
) -> Comparison:
    """`steps` are the step times of one run against one, see `inside_runs`.

    Raises BadInput for sides of different cases, runs that are on two sides, and runs of a side that are not repeats
    of one another."""
    for side in sides:
        refuse_mixture(side)
    refuse_other_cases(sides)
    _refuse_repeated(sides)
    sides = whole_pairs(sides)
    check_limits(limits, sides[0])
    baseline, *others = sides
    found = {side.letter: tuple(obstacles(baseline, side)) for side in others}
    incomparable = frozenset(letter for letter, reasons in found.items() if reasons)
    twins = frozenset(side.letter for side in others if _are_alike(baseline, side))
    rules = Rules(margin, incomparable, twins - incomparable)
    compared = figures(sides, rules)
    return Comparison(
        sides=tuple(sides),
        obstacles={letter: reasons for letter, reasons in found.items() if reasons},
        differences=tuple(differences(sides)),
        figures=tuple(compared),
        rows=compare_rows(sides, rules),
        margin=margin,
        paired=tuple(side.letter for side in others if pairs_of(baseline, side)),
        limits=judge_limits(limits, sides, compared, incomparable),
        inside=_inside(compared, baseline, steps),
    )


def _inside(compared: Sequence[Figure], baseline: Side, steps: Sequence[Sequence[float]]) -> InsideRuns | None:
    timed = KINDS[baseline.case.kind].timed
    ratios = [figure.against[0].ratio for figure in compared if figure.entry.name == timed]
    if not all(steps) or len(steps) != 2 or not ratios or ratios[0] is None:
        return None
    return inside_runs(ratios[0].value, *steps)


def _are_alike(baseline: Side, other: Side) -> bool:
    """In all that was recorded."""
    return bool(baseline.runs and other.runs) and not differences([baseline, other])


def _refuse_repeated(sides: Sequence[Side]) -> None:
    owners: dict[str, str] = {}
    for side in sides:
        for recorded in side.runs:
            if recorded.run.id in owners:
                both = f"{owners[recorded.run.id]} and {side.word}"
                raise BadInput(f"run {recorded.run.id} is on two sides, {both}; a run counts once")
        owners |= {recorded.run.id: side.word for recorded in side.runs}
