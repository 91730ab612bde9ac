"""Figures of a case that measures rows, against the card's rated values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.metrics import Metric
from flagperf.metrics.figures import SCALES, figure_entry
from flagperf.report.document import Block, Empty, Head, Table, TableCell, Text, Value
from flagperf.report.sections.cells import metric_cell
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.sentences import interval_range
from flagperf.report.texts import Lang, choose, label, say
from flagperf.robust import median
from flagperf.spec import RowFigure
from flagperf.store.run import Run

HEADS = ("head_figure", "head_measured", "head_interval", "head_rated", "head_share", "head_published", "head_devices")


def figures(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        yield from figure_table(recorded.run, page.lang, page.mark(number))
    yield from _between_runs(page)


def figure_table(run: Run, lang: Lang, mark: str = "") -> Iterator[Block]:
    """Nothing for a case without figures."""
    shown = [figure for figure in run.manifest.figures if _was_planned(run, figure)]
    if not shown:
        return
    title = label("figures", lang)
    rows = tuple(tuple(_cells(run, figure, lang)) for figure in shown)
    heads = tuple(Head(label(name, lang)) for name in HEADS)
    yield Table(heads, rows, say("line", lang, label=title, value=mark) if mark else title)


def _was_planned(run: Run, figure: RowFigure) -> bool:
    """False: the run has no such row, whether measured or not, for a single device has none of several."""
    metric = run.metric(figure.name)
    return metric is None or metric.message is None or metric.message.code != "figure.no_row"


def _cells(run: Run, figure: RowFigure, lang: Lang) -> Iterator[TableCell]:
    entry, metric = figure_entry(figure), run.metric(figure.name)
    cell = metric_cell(run, figure.name, entry.format)
    yield Text(choose(figure.title, lang), figure.name, strong=figure.headline)
    if isinstance(cell, Empty) or metric is None:
        yield from (cell, Text(""), Text(""), Text(""), _published(run, figure), Text(""))
        return
    yield Value(f"{cell.text} {figure.unit}", marks=cell.marks)
    yield Text(interval_range(metric, entry.format, lang))
    yield from _rated(figure, metric)
    yield _published(run, figure)
    yield Text(_over_devices(metric))


def _rated(figure: RowFigure, metric: Metric) -> Iterator[TableCell]:
    peak, share = metric.inputs.get("peak"), metric.inputs.get("share")
    if peak is None:
        yield from (Empty("unknown_peak"), Empty("unknown_peak"))
        return
    yield Value(f"{units.four_digits(peak / SCALES[figure.unit])} {figure.unit}")
    yield Empty("not_applicable") if share is None else Value(units.percent(share))


def _published(run: Run, figure: RowFigure) -> Text:
    """What was published for this figure on such cards, with what is said of how. All others are in a table below."""
    card = run.job.device_model
    found = [
        f"{units.four_digits(reference.values[figure.name])} ({reference.overrides})"
        for reference in run.manifest.references
        if reference.vendor == run.job.vendor
        and reference.device in (card.model, card.short_name)
        and figure.name in reference.values
    ]
    return Text(", ".join(found))


def _between_runs(page: PageRuns) -> Iterator[Block]:
    """How a figure differs between runs of the same configuration: more than within one, where processes differ."""
    repeats: dict[tuple[str, str, str], list[Run]] = {}
    for recorded in page.runs:
        job = recorded.run.job
        key = (job.shape, job.profile, repr(job.config.values))
        repeats.setdefault(key, []).append(recorded.run)
    heads = tuple(Head(label(name, page.lang)) for name in ("head_figure", "head_runs", "head_median", "head_spread"))
    for runs in repeats.values():
        rows = tuple(tuple(_over_runs(figure, runs, page.lang)) for figure in page.manifest.figures)
        if len(runs) > 1 and any(rows):
            yield Table(heads, tuple(row for row in rows if row), label("between_runs", page.lang))


def _over_runs(figure: RowFigure, runs: Sequence[Run], lang: Lang) -> Iterator[TableCell]:
    """Nothing if fewer than two runs have it."""
    metrics = [run.metric(figure.name) for run in runs]
    values = sorted(metric.value for metric in metrics if metric is not None and metric.value is not None)
    if len(values) < 2:
        return
    yield Text(choose(figure.title, lang), figure.name, strong=figure.headline)
    yield Text(str(len(values)))
    yield Value(f"{units.four_digits(median(values))} {figure.unit}")
    yield Text(f"{units.four_digits(values[0])} - {units.four_digits(values[-1])}")


def _over_devices(metric: Metric) -> str:
    """The lowest and the highest of several devices, or pairs of them."""
    counted = metric.inputs.get("per_device") or metric.inputs.get("per_label") or {}
    values = sorted(counted.values())
    return f"{units.four_digits(values[0])} - {units.four_digits(values[-1])}" if len(values) > 1 else ""
