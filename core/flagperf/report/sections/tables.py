"""The two tables of every page: the general table (definitions) and the performance table (values)."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.report.document import Block, Head, Table, Text
from flagperf.report.sections.columns import columns
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.rows import row_remark, row_title, row_value, rows
from flagperf.report.texts import say


def general(page: PageRuns) -> Iterator[Block]:
    heads = tuple(Head(page.label(name)) for name in ("head_name", "head_value", "head_remark"))
    lines = tuple(
        (
            Text(row_title(row, page), strong=row.headline),
            Text(row_value(row, page), strong=row.headline),
            Text(row_remark(row, page)),
        )
        for row in rows(page.manifest)
    )
    yield Table(heads, lines, page.label("general"))


def performance(page: PageRuns) -> Iterator[Block]:
    shown = columns(page.manifest)
    heads = tuple(column.titled(page.lang) for column in shown)
    lines = tuple(tuple(column.of_run(recorded.run, page.lang) for column in shown) for recorded in page.runs)
    remark = say("headlines", page.lang) if any(head.headline for head in heads) else ""
    yield Table(heads, lines, page.label("performance"), remark)
