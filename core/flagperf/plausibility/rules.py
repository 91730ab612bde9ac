"""Rule: what makes a figure doubtful, what a check of it saw, and the arithmetic of what is possible.

A rule is an entry beside its check, in `run_checks`, `row_checks`, `doubts` and the checks of published pages. The
message catalogues say what it means (`mark.<name>`, `rule.<name>`) and what was seen (`doubt.<name>`);
docs/plausibility.md is made of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from flagperf.bundle.run_record import Run
from flagperf.messages import Message, message
from flagperf.stats import Interval

FIGURES = "figures"
"""Stands for the figures that the case takes from its rows."""

ROWS = "rows"
"""Stands for the measured rows themselves."""


class Rule(msgspec.Struct, frozen=True):
    name: str
    """Its id, and the mark that it gives."""
    published: str
    """The published mistake that it is drawn from."""
    of: tuple[Literal["run", "runs", "page"], ...] = ("run",)
    """One recorded run; several that are shown together; a published page (`flagperf pages lint`)."""
    effect: Literal["marked", "refused", "withheld", "reported"] = "marked"
    """`marked`: the metrics carry its name as a mark. `refused`: and no page is written. `withheld`: the formula gave a
    reason in place of a value. `reported`: a finding of `pages lint` alone."""
    metrics: tuple[str, ...] = ()
    """Those of a run that it may mark, as patterns; also FIGURES and ROWS."""
    limits: dict[str, float] = {}
    messages: tuple[str, ...] = ()
    """For `withheld`: codes of the reasons."""

    def may_mark(self, name: str, run: Run) -> bool:
        is_figure = FIGURES in self.metrics and name in {figure.name for figure in run.manifest.figures}
        return is_figure or any(fnmatchcase(name, pattern) for pattern in self.metrics)


class Seen(msgspec.Struct, frozen=True):
    """One break of a rule."""

    message: Message
    metrics: tuple[str, ...] = ()
    """Empty: all that the rule may mark."""
    rows: tuple[int, ...] = ()
    """Indices of the measured rows that are marked."""


def seen(code: str, metrics: Sequence[str] = (), rows: Sequence[int] = (), /, **params: Any) -> Seen:
    return Seen(message(code, **params), tuple(metrics), tuple(rows))


Check = Callable[[Run], Iterator[Seen]]
"""Looks for breaks of a rule in one run. A missing figure breaks no rule."""


def value_of(run: Run, name: str) -> float | None:
    metric = run.metric(name)
    return None if metric is None else metric.value


def reach(interval: Interval | None, value: float | None) -> float:
    """Return how far an interval reaches to its longer side, as a share of the value."""
    if interval is None or not value:
        return 0.0
    return max(interval.high - value, value - interval.low) / abs(value)


# --- what is possible, in plain numbers: for recorded runs and for the cells of published pages -----------------------

GIB_PER_GB = 1e9 / (1 << 30)


def is_gb_for_gib(value: float, total: float) -> bool:
    """Return whether a figure above the total fits if its unit is 10^9 and not 2^30 bytes."""
    return total > 0 and value > total >= value * GIB_PER_GB


def differ_by_unit(one: float, other: float, difference: float) -> bool:
    """Return whether one counts 2^30 bytes where the other counts 10^9, within a relative difference."""
    if one <= 0 or other <= 0:
        return False
    ratio = max(one, other) / min(one, other)
    return abs(ratio * GIB_PER_GB - 1) <= difference


def explaining_row(rate: float, row: str, peaks: Mapping[str, float]) -> str:
    """Return the slowest faster precision whose peak allows this rate. Empty if none does."""
    faster = {name: peak for name, peak in peaks.items() if peak >= rate and peak > peaks.get(row, 0.0)}
    return min(faster, key=lambda name: faster[name], default="")


def largest_deviation(mean: float, high: float) -> float:
    """Return the largest standard deviation that figures of 0 and more can have with this mean and maximum."""
    return math.sqrt(max(0.0, high - mean) * max(0.0, mean))


def scaling(rate: float, devices: int, base_rate: float, base_devices: int) -> float:
    """Return the throughput of a device among many, divided by that of a device of the base."""
    return (rate / devices) / (base_rate / base_devices)


def is_idle(share: float, watts: float, tdp: float, limits: Mapping[str, float]) -> bool:
    """Return whether a card stays near its idle power although it computes at a good part of its peak."""
    return share > limits["share"] and watts < limits["power"] * tdp
