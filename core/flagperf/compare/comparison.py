"""Compare sides: every metric and row with the baseline's, and the limits that a comparison has to keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.compare.conditions import Difference, differences, obstacles, refuse_mixtures
from flagperf.compare.contrasts import ComparedFigure, RowComparison, VerdictRules, compare_figures, compare_rows
from flagperf.compare.ratio import MARGIN, Contrast
from flagperf.compare.sides import InsideRuns, Side, inside_runs, pairs_of, whole_pairs
from flagperf.errors import BadInput, unknown_name
from flagperf.kinds import KINDS
from flagperf.messages import Message, message
from flagperf.metrics.registry import entries_of

# `--fail-if 'p_core < -5%'`: what a comparison has to keep to, for continuous integration.


_FORM = re.compile(r"\s*(?P<metric>[^\s<>]+)\s*(?P<sign>[<>])\s*(?P<percent>[+-]?\d+(\.\d+)?)\s*%\s*")

State = Literal["kept", "broken", "undecided", "unknown"]


class ComparisonLimit(msgspec.Struct, frozen=True):
    text: str
    metric: str
    below: bool
    """The limit is broken below `share`, else above."""
    share: float
    """The difference as a share of the baseline: -0.05 is 5 % less."""


class Judgement(msgspec.Struct, frozen=True):
    limit: ComparisonLimit
    side: str
    state: State
    why: Message | None = None
    """Why the limit cannot be judged."""
    by_interval: bool = False
    """The whole interval decides. Else the plain difference does, as for single runs and published results."""


def parse_limit(text: str) -> ComparisonLimit:
    found = _FORM.fullmatch(text)
    if found is None:
        form = "a metric, < or >, and a difference from the baseline in percent"
        raise BadInput(f"--fail-if takes {form}, for example 'p_core < -5%'; got {text!r}")
    share = float(found["percent"]) / 100
    if share <= -1:
        raise BadInput(f"--fail-if {text!r}: no metric can be more than 100 % below the baseline")
    return ComparisonLimit(text.strip(), found["metric"], found["sign"] == "<", share)


def judge_limits(
    limits: Sequence[ComparisonLimit],
    sides: Sequence[Side],
    figures: Sequence[ComparedFigure],
    incomparable: frozenset[str],
) -> tuple[Judgement, ...]:
    """Judge every limit for every side but the baseline."""
    by_name = {figure.entry.name: figure for figure in figures}
    found = []
    for limit in limits:
        for index, side in enumerate(sides[1:]):
            figure = by_name.get(limit.metric)
            contrast = figure.against[index] if figure else Contrast(why=message("compare.missing"))
            ratio = contrast.ratio
            if side.letter in incomparable or ratio is None:
                why = message("compare.incomparable") if side.letter in incomparable else contrast.why
                found.append(Judgement(limit, side.letter, "unknown", why))
                continue
            low, high = (ratio.low, ratio.high) if ratio.has_interval else (ratio.value, ratio.value)
            assert low is not None and high is not None
            beyond = [end < 1 + limit.share if limit.below else end > 1 + limit.share for end in (low, high)]
            state: State = "broken" if all(beyond) else "undecided" if any(beyond) else "kept"
            found.append(Judgement(limit, side.letter, state, by_interval=ratio.has_interval))
    return tuple(found)


class Comparison(msgspec.Struct, frozen=True):
    sides: tuple[Side, ...]
    """The first is the baseline."""
    obstacles: dict[str, tuple[Message, ...]]
    """Letter of a side -> why it cannot be compared with the baseline."""
    differences: tuple[Difference, ...]
    figures: tuple[ComparedFigure, ...]
    rows: RowComparison
    margin: float
    """The smallest margin of a verdict; that of a noisy side is wider."""
    paired: tuple[str, ...] = ()
    """Letters of sides that took turns with the baseline."""
    limits: tuple[Judgement, ...] = ()
    inside: InsideRuns | None = None
    """Set for one run against one."""


def compare(
    sides: Sequence[Side],
    margin: float = MARGIN,
    limits: Sequence[ComparisonLimit] = (),
    steps: Sequence[Sequence[float]] = (),
) -> Comparison:
    """Compare every side with the first. `steps` are the step times of one run against one, see `inside_runs`.

    Raise BadInput for sides of different cases, runs that are on two sides, and runs of a side that are not repeats
    of one another."""
    refuse_mixtures(sides)
    sides = whole_pairs(sides)
    baseline, *others = sides
    names = [entry.name for entry in entries_of(baseline.case)]
    for limit in limits:
        if limit.metric not in names:
            raise unknown_name(f"metric of case {baseline.case.name}", limit.metric, names, "(--fail-if)")
    found = {side.letter: tuple(obstacles(baseline, side)) for side in others}
    incomparable = frozenset(letter for letter, reasons in found.items() if reasons)
    twins = (side for side in others if side.runs and baseline.runs and not differences([baseline, side]))
    rules = VerdictRules(margin, incomparable, frozenset(side.letter for side in twins) - incomparable)
    compared = compare_figures(sides, rules)
    timed = KINDS[baseline.case.kind].timed
    speed = next((figure.against[0].ratio for figure in compared if figure.entry.name == timed), None)
    return Comparison(
        sides=tuple(sides),
        obstacles={letter: reasons for letter, reasons in found.items() if reasons},
        differences=tuple(differences(sides)),
        figures=tuple(compared),
        rows=compare_rows(sides, rules),
        margin=margin,
        paired=tuple(side.letter for side in others if pairs_of(baseline, side)),
        limits=judge_limits(limits, sides, compared, incomparable),
        inside=inside_runs(speed.value, *steps) if speed and len(steps) == 2 and all(steps) else None,
    )
