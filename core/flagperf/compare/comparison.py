"""compare: from sides to a comparison. No disk, no clock; what is shown is in report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.compare.conditions import Difference, differences, obstacles, refuse_mixture, refuse_other_cases
from flagperf.compare.contrasts import Figure, RowComparison, Rules, compare_rows, figures
from flagperf.compare.ratio import MARGIN, Contrast
from flagperf.compare.sides import InsideRuns, Side, inside_runs, pairs_of, whole_pairs
from flagperf.errors import BadInput, unknown_name
from flagperf.kinds import KINDS
from flagperf.messages import Message, message
from flagperf.metrics.registry import entries_of

# `--fail-if 'p_core < -5%'`: what a comparison has to keep to, for continuous integration.


_FORM = re.compile(r"\s*(?P<metric>[^\s<>]+)\s*(?P<sign>[<>])\s*(?P<percent>[+-]?\d+(\.\d+)?)\s*%\s*")

State = Literal["kept", "broken", "undecided", "unknown"]


class Limit(msgspec.Struct, frozen=True):
    text: str
    metric: str
    below: bool
    """It is broken below `share`, else above."""
    share: float
    """Of the baseline: -0.05 is 5 % less."""


class Judgement(msgspec.Struct, frozen=True):
    limit: Limit
    side: str
    state: State
    why: Message | None = None
    """Why it cannot be judged."""
    by_interval: bool = False
    """All of the interval decides; else the plain difference, of single runs and published results."""


def parse_limit(text: str) -> Limit:
    found = _FORM.fullmatch(text)
    if found is None:
        form = "a metric, < or >, and a difference from the baseline in percent"
        raise BadInput(f"--fail-if takes {form}, for example 'p_core < -5%'; got {text!r}")
    share = float(found["percent"]) / 100
    if share <= -1:
        raise BadInput(f"--fail-if {text!r}: no metric can be more than 100 % below the baseline")
    return Limit(text.strip(), found["metric"], found["sign"] == "<", share)


def check_limits(limits: Sequence[Limit], baseline: Side) -> None:
    """Raises BadInput for a metric that the case does not have."""
    names = [entry.name for entry in entries_of(baseline.case)]
    for limit in limits:
        if limit.metric not in names:
            raise unknown_name(f"metric of case {baseline.case.name}", limit.metric, names, "(--fail-if)")


def judge_limits(
    limits: Sequence[Limit], sides: Sequence[Side], figures: Sequence[Figure], incomparable: frozenset[str]
) -> tuple[Judgement, ...]:
    by_name = {figure.entry.name: figure for figure in figures}
    return tuple(
        _judgement(limit, side.letter, _contrast(by_name.get(limit.metric), index), side.letter in incomparable)
        for limit in limits
        for index, side in enumerate(sides[1:])
    )


def _contrast(figure: Figure | None, index: int) -> Contrast | None:
    return figure.against[index] if figure else None


def _judgement(limit: Limit, side: str, contrast: Contrast | None, is_incomparable: bool) -> Judgement:
    if is_incomparable:
        return Judgement(limit, side, "unknown", message("compare.incomparable"))
    if contrast is None or contrast.ratio is None:
        return Judgement(limit, side, "unknown", contrast.why if contrast else message("compare.missing"))
    ratio, bound = contrast.ratio, 1 + limit.share
    low, high = (ratio.low, ratio.high) if ratio.has_interval else (ratio.value, ratio.value)
    assert low is not None and high is not None
    beyond = [end < bound if limit.below else end > bound for end in (low, high)]
    state: State = "broken" if all(beyond) else "undecided" if any(beyond) else "kept"
    return Judgement(limit, side, state, by_interval=ratio.has_interval)


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
