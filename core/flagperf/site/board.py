"""Board: all rows of a site, coded by column, as the page carries them. Of 10,000 runs of a lab, most values repeat:
a column is its different values, and for each row the number of one of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flagperf.compare import main_entries
from flagperf.compare.figures import headlines
from flagperf.escapes import one_line
from flagperf.messages import Lang, choose
from flagperf.metrics.registry import entry_of
from flagperf.site.row import Row
from flagperf.spec import Manifest

PLAIN = tuple(name for name in Row.__struct_fields__ if name not in ("case", "labels", "figures", "identity", "setup"))
"""Fields of a row that are a column each."""
BY_NAME = ("figures", "identity", "setup")
"""Fields with a column for each name in them."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    of: list[Any]
    """Its different values. None where a row has none."""
    at: list[int] = []
    """For each row, the number of its value. Empty if all are the first."""


class Metric(msgspec.Struct, frozen=True):
    name: str
    title: str
    unit: str
    better: int
    """1 if the higher value is better, -1 if the lower one is, 0 if neither."""
    is_headline: bool


class CaseRows(msgspec.Struct, frozen=True):
    name: str
    title: str
    size: int
    metrics: list[Metric]
    """Those that a row has a value of, the main results first."""
    plain: dict[str, Column]
    figures: dict[str, Column]
    identity: dict[str, Column]
    setup: dict[str, Column]


def board(rows: Iterable[Row], manifests: Mapping[str, Manifest], lang: Lang) -> list[CaseRows]:
    """By case, in the order of their names. `manifests` has every case of the rows."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, []).append(row)
    return [_case_rows(of_case, manifests[name], lang) for name, of_case in sorted(by_case.items())]


def _case_rows(rows: Sequence[Row], manifest: Manifest, lang: Lang) -> CaseRows:
    plain = {name: column([getattr(row, name) for row in rows]) for name in PLAIN}
    plain["labels"] = column([" ".join(row.labels) for row in rows])
    named = {name: _columns([getattr(row, name) for row in rows]) for name in BY_NAME}
    valued = dict.fromkeys(name for row in rows for name, figure in row.figures.items() if figure.value is not None)
    title = one_line(choose(manifest.title, lang))
    return CaseRows(rows[0].case, title, len(rows), _metrics(valued, manifest, lang), plain, **named)


def _columns(rows: Sequence[Mapping[str, Hashable]]) -> dict[str, Column]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column([row.get(name) for row in rows]) for name in names}


def column(values: Sequence[Hashable]) -> Column:
    numbers: dict[Hashable, int] = {}
    at = [numbers.setdefault(value, len(numbers)) for value in values]
    return Column(list(numbers), at if len(numbers) > 1 else [])


def _metrics(names: Iterable[str], manifest: Manifest, lang: Lang) -> list[Metric]:
    """In the order of a comparison; what only other versions of the case have comes last."""
    main = [entry.name for entry in main_entries(manifest)]
    ordered = sorted(names, key=lambda name: main.index(name) if name in main else len(main))
    return [_metric(name, manifest, lang) for name in ordered]


_BETTER = {"faster": 1, "higher": 1, "quicker": -1, "lower": -1}


def _metric(name: str, manifest: Manifest, lang: Lang) -> Metric:
    entry = entry_of(manifest, name)
    if entry is None:
        return Metric(one_line(name), one_line(name), "", 0, is_headline=False)
    unit = entry.shown_unit or entry.unit_of(manifest)
    title = choose(manifest.page.titles.get(name, {}), lang) or choose(entry.title, lang)
    return Metric(
        name=one_line(name),
        title=one_line(title),
        unit="" if unit in ("share", "fraction") else one_line(unit),
        better=_BETTER.get(entry.better or "", 0),
        is_headline=name in headlines(manifest),
    )
