"""`--fail-if 'p_core < -5%'`: what a comparison has to keep to, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from flagperf.compare.contrast import Contrast
from flagperf.compare.figures import Figure
from flagperf.compare.side import Side
from flagperf.errors import BadInput, unknown_name
from flagperf.messages import Message, message
from flagperf.metrics.registry import entries_of

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
