"""Rows and figures as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, choose, label, row_label, say
from flagperf.metrics.entry import Metric
from flagperf.metrics.row_figures import figure_entry
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import Block, Bullets, Empty, Head, Table, TableCell, Text, Value
from flagperf.report.page_runs import PageRuns
from flagperf.report.wording import interval_range, metric_cell
from flagperf.spec.manifest import RowFigure
from flagperf.stats import median, standing_out
from flagperf.units import SCALES

# Figures of a case that measures rows, against the card's rated values.


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
    rows = tuple(tuple(_figure_cells(run, figure, lang)) for figure in shown)
    heads = tuple(Head(label(name, lang)) for name in HEADS)
    yield Table(heads, rows, say("line", lang, label=title, value=mark) if mark else title)


def _was_planned(run: Run, figure: RowFigure) -> bool:
    """False: the run has no such row, whether measured or not, for a single device has none of several."""
    metric = run.metric(figure.name)
    return metric is None or metric.message is None or metric.message.code != "figure.no_row"


def _figure_cells(run: Run, figure: RowFigure, lang: Lang) -> Iterator[TableCell]:
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


# Rows of a run that measured the same on several devices, as one line of a table.


LEAST_SHARE = 0.03
"""A device is named only if it is slower than the median by more than this share."""

NAMED_AT_MOST = 5


class RowGroup(msgspec.Struct, frozen=True):
    """Equal name and labels, one row for each rank."""

    rows: tuple[MeasuredRow, ...]

    @property
    def name(self) -> str:
        return self.rows[0].name

    @property
    def labels(self) -> dict[str, str]:
        return self.rows[0].labels

    @property
    def measured(self) -> list[MeasuredRow]:
        return [row for row in self.rows if row.median is not None]

    @property
    def middle(self) -> MeasuredRow | None:
        """The row that stands for all: of a transfer the slowest rank's, which is as long as it takes; else that of the
        median device, and of two in the middle the one with more time, or with less of anything else."""
        ordered = sorted(self.measured, key=lambda row: row.median or 0.0, reverse=self.rows[0].unit != "s")
        if not ordered:
            return None
        return ordered[-1] if "bus_bytes" in ordered[0].work else ordered[len(ordered) // 2]

    @property
    def failed(self) -> list[MeasuredRow]:
        return [row for row in self.rows if row.median is None]

    @property
    def marks(self) -> tuple[str, ...]:
        """Those of all devices."""
        return tuple(dict.fromkeys(mark for row in self.measured for mark in row.marks))

    @property
    def slow_ranks(self) -> list[int]:
        """Those that stand out among more than two."""
        times = [row.median or 0.0 for row in self.measured]
        if len(times) < 3 or self.rows[0].unit != "s":
            return []
        return [self.measured[index].rank for index in standing_out(times, LEAST_SHARE * median(times))]


def missing_lines(groups: Sequence[RowGroup], lang: Lang) -> Iterator[Block]:
    """Where a line of a table has a value, though not of every device."""
    lines = [_missing_line(group, lang) for group in groups if group.measured and group.failed]
    if lines:
        yield Bullets(tuple(map(Text, lines)), label("some_missing", lang))


def _missing_line(group: RowGroup, lang: Lang) -> str:
    first = group.failed[0]
    return say(
        "missing_row",
        lang,
        row=" ".join(group.labels.values()),
        ranks=", ".join(str(row.rank) for row in group.failed[:NAMED_AT_MOST]),
        missing=len(group.failed),
        all=len(group.rows),
        status=first.status,
        problem=first.problem,
    )


def row_groups(rows: Iterable[MeasuredRow]) -> list[RowGroup]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[MeasuredRow]] = {}
    for row in rows:
        found.setdefault((row.name, tuple(row.labels.items())), []).append(row)
    return [RowGroup(tuple(group)) for group in found.values()]


# --- cells ----------------------------------------------------------------------------------------------------------


def time_cell(group: RowGroup) -> TableCell:
    """The value of the median device, in a unit that fits; or why there is none."""
    row = group.middle
    if row is None:
        failed = group.failed[0]
        return Empty(failed.status, failed.problem)
    if row.unit == "share":
        return Value(units.percent(row.median or 0), marks=group.marks)
    scale, unit = scaled(row)
    return Value(f"{units.four_digits((row.median or 0) / scale)} {unit}".strip(), marks=group.marks)


def interval_cell(group: RowGroup) -> Text:
    """Of a single device its interval, of several their range."""
    row = group.middle
    if row is None:
        return Text("")
    values = sorted(each.median or 0.0 for each in group.measured)
    if len(values) > 1:
        return Text(_range(row, values[0], values[-1]))
    return Text(_range(row, row.interval.low, row.interval.high)) if row.interval else Text("")


def _range(row: MeasuredRow, low: float, high: float) -> str:
    """In the unit of its value."""
    if row.unit == "share":
        return f"{units.percent(low)} - {units.percent(high)}"
    scale, _ = scaled(row)
    return f"{units.four_digits(low / scale)} - {units.four_digits(high / scale)}"


def scaled(row: MeasuredRow) -> tuple[float, str]:
    """What its value is divided by to be shown, and the unit then."""
    if row.unit == "bytes":
        return float(units.GIB), "GiB"
    return (1.0, row.unit) if row.unit != "s" or row.median is None else _seconds_scaled(row.median)


def time_text(seconds: float) -> str:
    scale, unit = _seconds_scaled(seconds)
    return f"{units.four_digits(seconds / scale)} {unit}"


def energy_text(joules: float) -> str:
    for scale, unit in ((1.0, "J"), (1e-3, "mJ"), (1e-6, "uJ")):
        if joules >= scale:
            return f"{units.four_digits(joules / scale)} {unit}"
    return f"{units.four_digits(joules / 1e-9)} nJ"


def _seconds_scaled(seconds: float) -> tuple[float, str]:
    if seconds >= 1:
        return 1.0, "s"
    return (1e-3, "ms") if seconds >= 1e-3 else (1e-6, "us")


def rate_cell(group: RowGroup, amount: str | None = None) -> Text:
    """Of one amount of work, else of the first that the row has."""
    row = group.middle
    return Text(rate_text(row, amount) if row else "")


RATES = (("flops", 1e12, "TFLOPS"), ("bus_bytes", 1e9, "GB/s"), ("bytes", 1e9, "GB/s"))


def rate_text(row: MeasuredRow, wanted: str | None = None) -> str:
    for amount, scale, unit in RATES:
        if row.work.get(amount) and row.median and wanted in (None, amount):
            shown = "TOPS" if row.limits.get(amount, "").startswith("int") else unit
            return f"{units.four_digits((row.rate(amount) or 0) / scale)} {shown}"
    return ""


def share_cell(group: RowGroup) -> Text:
    row = group.middle
    return Text("" if row is None or row.share is None else units.percent(row.share))


def label_cell(group: Labelled, name: str) -> Text:
    """Sizes in the unit that they are whole numbers of."""
    text = group.labels.get(name, "")
    if name != "bytes" or not text.isdecimal():
        return Text(text)
    size = int(text)
    scale, unit = next((each for each in SIZES if size and size % each[0] == 0), (1, "B"))
    return Text(f"{size // scale} {unit}")


SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Labelled(Protocol):
    @property
    def labels(self) -> dict[str, str]: ...


def label_heads(names: Sequence[str], lang: Lang) -> list[Head]:
    return [Head(row_label(name, lang)) for name in names]


def label_names(groups: Sequence[Labelled]) -> list[str]:
    """Labels that differ between the groups; the others say nothing in a table of theirs. At least one."""
    names = list(dict.fromkeys(name for group in groups for name in group.labels))
    told = [name for name in names if len({group.labels.get(name, "") for group in groups}) > 1]
    return told or names[:1]


# Tables of the rows that a case measured, one table per row name. Equal rows of several devices are one line.


EXTRAS = {"burst": time_text, "power": lambda watts: f"{units.four_digits(watts)} W", "energy": energy_text}
"""Columns of rows that have them: the first second of a long row; power of the card, and energy of one call."""

BANDWIDTHS = {"algbw": "bytes", "busbw": "bus_bytes"}
"""Column of a transfer -> the amount of work that it is a rate of."""

FOLDED_ROWS = 16
"""A longer table is folded on a page."""


def measured(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        yield from measured_tables(recorded.run, page.lang, page.mark(number))


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
