"""Tables of the rows that a case measured, one table per row name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.metrics import MeasuredRow
from flagperf.report.document import Block, Empty, Head, Table, TableCell, Text, Value
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import Lang, label, say
from flagperf.store.run import Run


def measured(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        mark = say("this_row", page.lang, row=number) if len(page.runs) > 1 else ""
        yield from measured_tables(recorded.run, page.lang, mark)


def measured_tables(run: Run, lang: Lang, mark: str = "") -> Iterator[Block]:
    """Nothing for a case that only measures steps."""
    by_name: dict[str, list[MeasuredRow]] = {}
    for row in run.rows:
        by_name.setdefault(row.name, []).append(row)
    for name, rows in by_name.items():
        title = say("line", lang, label=label("measured_rows", lang), value=f"{name} {mark}".rstrip())
        yield _table(title, rows, lang)


def _table(title: str, rows: Sequence[MeasuredRow], lang: Lang) -> Table:
    labels = list(dict.fromkeys(key for row in rows for key in row.labels))
    ranks = ["rank"] if len({row.rank for row in rows}) > 1 else []
    figures = [label(f"head_{name}", lang) for name in ("median", "spread", "repeats")]
    heads = tuple(map(Head, (*labels, *ranks, *figures)))
    lines = tuple(tuple(_cells(row, labels, bool(ranks))) for row in rows)
    return Table(heads, lines, title)


def _cells(row: MeasuredRow, labels: Sequence[str], with_rank: bool) -> Iterator[TableCell]:
    yield from (Text(row.labels.get(key, "")) for key in labels)
    if with_rank:
        yield Text(str(row.rank))
    if row.median is None or row.low is None or row.high is None:
        yield from (Empty("not_measured", row.problem), Text(""))
    else:
        yield Value(units.four_digits(row.median), row.unit)
        yield Text(f"{units.four_digits(row.low)} - {units.four_digits(row.high)}")
    yield Text(units.count(row.num_repeats))
