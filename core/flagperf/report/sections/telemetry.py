"""What was read of the devices while rows were measured: the last tables of published pages of this kind."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.metrics import Metric
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.registry import entries_of
from flagperf.report.document import Block, Head, Table, TableCell, Text
from flagperf.report.sections.cells import measured_cell
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import choose, say
from flagperf.store.run import Run

PUBLISHED = ("power_mean", "power_max", "temperature_max", "cpu_others")
"""Listed even if they were not read, with the reason. Others only if they were."""

GROUPS = ("power", "host")


def telemetry(page: PageRuns) -> Iterator[Block]:
    entries = [entry for entry in entries_of(page.manifest) if entry.group in GROUPS and _is_shown(entry, page)]
    numbers = range(1, len(page.runs) + 1)
    of_runs = [say("this_row", page.lang, row=number) for number in numbers] if len(page.runs) > 1 else []
    heads = (page.label("head_telemetry"), *(of_runs or [page.label("head_measured")]), page.label("head_remark"))
    rows = tuple(
        (Text(choose(entry.title, page.lang)), *_cells(entry, page), Text(choose(entry.remark, page.lang)))
        for entry in entries
    )
    yield Table(tuple(map(Head, heads)), rows, page.label("telemetry"))


def _is_shown(entry: MetricEntry, page: PageRuns) -> bool:
    return entry.name in PUBLISHED or any(_has_value(recorded.run, entry.name) for recorded in page.runs)


def _has_value(run: Run, name: str) -> bool:
    metric: Metric | None = run.metric(name)
    return metric is not None and metric.value is not None


def _cells(entry: MetricEntry, page: PageRuns) -> list[TableCell]:
    unit = "" if entry.unit == "share" else entry.shown_unit or entry.unit_of(page.manifest)
    return [measured_cell(recorded.run, entry.name, entry.format, unit) for recorded in page.runs]
