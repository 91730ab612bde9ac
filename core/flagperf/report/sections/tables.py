"""The two tables of every page: the general table (definitions) and the performance table (values)."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.kinds import KINDS
from flagperf.report.document import Block, Head, Table, Text
from flagperf.report.sections.columns import columns
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.rows import row_remark, row_title, row_value, rows
from flagperf.report.texts import say


def general(page: PageRuns) -> Iterator[Block]:
    """Figures of rows have a table of their own, with more than a value."""
    left_out = {figure.name for figure in page.manifest.figures}
    if "performance" not in KINDS[page.manifest.kind].sections and "extra" in page.manifest.page.rows:
        left_out.add("fix_hp")  # that row has them, with where each comes from
    heads = tuple(Head(page.label(name)) for name in ("head_name", "head_value", "head_remark"))
    lines = tuple(
        (
            Text(row_title(row, page), strong=row.headline),
            Text(row_value(row, page), strong=row.headline),
            Text(row_remark(row, page)),
        )
        for row in rows(page.manifest)
        if row.name not in left_out
    )
    yield Table(heads, lines, page.label("general"))


def performance(page: PageRuns) -> Iterator[Block]:
    shown = columns(page.manifest)
    runs = [recorded.run for recorded in page.runs]
    heads = tuple(column.titled(page.lang, runs) for column in shown)
    lines = tuple(tuple(column.of_run(recorded.run, page.lang) for column in shown) for recorded in page.runs)
    remark = say("headlines", page.lang) if any(head.headline for head in heads) else ""
    yield Table(heads, lines, page.label("performance"), remark)
