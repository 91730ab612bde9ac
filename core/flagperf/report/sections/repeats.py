"""What a group of repeats says together: of every main metric the median, and how far its runs are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.compare import main_entries
from flagperf.metrics.entry import MetricEntry
from flagperf.report.document import Block, Head, Table, TableCell, Text, Value
from flagperf.report.sections.sentences import with_unit
from flagperf.report.texts import Lang, label, say
from flagperf.robust import median
from flagperf.store.run import Run

HEADS = ("head_name", "head_runs", "head_median", "head_spread", "head_apart")


def repeats(runs: Sequence[Run], lang: Lang, name: str) -> Iterator[Block]:
    """`name` is that of the group. Nothing without results."""
    found = [run for run in runs if run.has_results]
    if not found:
        return
    heads = tuple(Head(label(head, lang)) for head in HEADS)
    rows = tuple(row for entry in main_entries(found[0].manifest) if (row := tuple(_cells(entry, found))))
    remark = say("repeats_of", lang, count=len(found), all=len(runs))
    yield Table(heads, rows, say("line", lang, label=label("repeats", lang), value=name), remark)


def _cells(entry: MetricEntry, runs: Sequence[Run]) -> Iterator[TableCell]:
    """Nothing if no run has it."""
    metrics = [metric for run in runs if (metric := run.metric(entry.name)) is not None and metric.value is not None]
    values = sorted(float(metric.value) for metric in metrics if metric.value is not None)
    if not values:
        return
    middle = median(values)
    marks = tuple(dict.fromkeys(mark for metric in metrics for mark in metric.marks))
    yield Text(entry.head or entry.name)
    yield Text(str(len(values)))
    yield Value(with_unit(entry, middle, metrics[0].unit), marks=marks)
    yield Text(f"{entry.format(values[0])} - {entry.format(values[-1])}")
    yield Text(units.percent((values[-1] - values[0]) / middle) if middle else "")
