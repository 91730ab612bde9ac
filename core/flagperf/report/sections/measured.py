"""Tables of the rows that a case measured, one table per row name. Equal rows of several devices are one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.report.document import Block, Bullets, Head, Table, TableCell, Text
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.row_charts import row_charts
from flagperf.report.sections.row_groups import (
    RowGroup,
    energy_text,
    interval_cell,
    label_cell,
    label_heads,
    label_names,
    missing_lines,
    rate_cell,
    row_groups,
    share_cell,
    time_cell,
    time_text,
)
from flagperf.report.texts import Lang, label, say
from flagperf.robust import median
from flagperf.store.run import Run

EXTRAS = {"burst": time_text, "power": lambda watts: f"{units.four_digits(watts)} W", "energy": energy_text}
"""Columns of rows that have them: the first second of a long row; power of the card, and energy of one call."""

BANDWIDTHS = {"algbw": "bytes", "busbw": "bus_bytes"}
"""Column of a transfer -> the amount of work that it is a rate of."""

FOLDED_ROWS = 16
"""A longer table is folded on a page."""


def measured(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        yield from measured_tables(recorded.run, page.lang, page.mark(number))
        yield from row_charts(recorded.run, page.lang)


def measured_tables(run: Run, lang: Lang, mark: str = "") -> Iterator[Block]:
    """Nothing for a case that only measures steps."""
    by_name: dict[str, list[RowGroup]] = {}
    for group in row_groups(run.rows):
        by_name.setdefault(group.name, []).append(group)
    for name, groups in by_name.items():
        title = say("line", lang, label=label("measured_rows", lang), value=f"{name} {mark}".rstrip())
        yield row_table(title, groups, lang, folded=len(groups) > FOLDED_ROWS)
        slow = [line for group in groups for line in _slow_lines(group, lang)]
        if slow:
            yield Bullets(tuple(map(Text, slow)), label("stand_out", lang))
        yield from missing_lines(groups, lang)


def row_table(title: str, groups: Sequence[RowGroup], lang: Lang, *, folded: bool = False) -> Table:
    names = label_names(groups)
    has_devices = any(len(group.rows) > 1 for group in groups)
    rates = _rates(groups)
    figures = ["median", "devices" if has_devices else "interval", "repeats", *rates, *(["share"] if rates else [])]
    extras = [name for name in EXTRAS if any(getattr(row, name) is not None for each in groups for row in each.rows)]
    heads = (*label_heads(names, lang), *(Head(label(f"head_{name}", lang)) for name in (*figures, *extras)))
    lines = tuple((*_cells(group, names, rates), *_extra_cells(group, extras)) for group in groups)
    return Table(heads, lines, title, collapsed=folded)


def _rates(groups: Sequence[RowGroup]) -> list[str]:
    """Transfers between devices have two, which only their names tell apart."""
    if any("bus_bytes" in group.rows[0].work for group in groups):
        return ["algbw", "busbw"]
    return ["rate"] if any(group.rows[0].work for group in groups) else []


def _extra_cells(group: RowGroup, names: Sequence[str]) -> Iterator[TableCell]:
    for name in names:
        value = getattr(group.middle, name) if group.middle else None
        yield Text("" if value is None else EXTRAS[name](value))


def _cells(group: RowGroup, names: Sequence[str], rates: Sequence[str]) -> Iterator[TableCell]:
    yield from (label_cell(group, name) for name in names)
    yield time_cell(group)
    yield interval_cell(group)
    yield Text(units.count(group.middle.num_repeats if group.middle else 0))
    yield from (rate_cell(group, BANDWIDTHS.get(name)) for name in rates)
    if rates:
        yield share_cell(group)


def _slow_lines(group: RowGroup, lang: Lang) -> Iterator[str]:
    what = " ".join(group.labels.values())
    usual = units.four_digits(median([row.median or 0 for row in group.measured]) * 1e3) if group.measured else ""
    for rank in group.slow_ranks:
        row = next(row for row in group.rows if row.rank == rank)
        yield say("slow_row", lang, rank=rank, row=what, value=units.four_digits((row.median or 0) * 1e3), median=usual)
