"""Rule: what makes a figure doubtful, as data (`rules.toml`), and what a check of it saw."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from flagperf.messages import Message
from flagperf.metrics import Interval
from flagperf.spec import read_toml
from flagperf.store.run import RecordedRun, Run

FIGURES = "figures"
"""Stands for the figures that the case takes from its rows."""

ROWS = "rows"
"""Stands for the measured rows themselves."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of rules.toml, which says what the fields mean."""

    of: tuple[Literal["run", "runs", "page"], ...]
    effect: Literal["marked", "refused", "withheld", "reported"]
    published: str
    metrics: tuple[str, ...] = ()
    limits: dict[str, float] = {}
    messages: tuple[str, ...] = ()

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


class Check(Protocol):
    """What a rule looks for in one run. A missing figure breaks no rule."""

    def __call__(self, recorded: RecordedRun, rule: Rule, /) -> Iterator[Seen]: ...


@functools.cache
def rules() -> dict[str, Rule]:
    """Id -> rule, in the order of the file."""
    return msgspec.convert(read_toml(Path(__file__).with_name("rules.toml")), dict[str, Rule])


def value_of(run: Run, name: str) -> float | None:
    metric = run.metric(name)
    return None if metric is None else metric.value


def reach(interval: Interval | None, value: float | None) -> float:
    """How far an interval reaches to its longer side, as a share of the value."""
    if interval is None or not value:
        return 0.0
    return max(interval.high - value, value - interval.low) / abs(value)
