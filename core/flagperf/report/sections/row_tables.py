"""Tables of measured rows, and of the figures that are taken from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, choose, label, row_label, say
from flagperf.metrics.row_figures import figure_entry
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import Block, Bullets, Empty, Head, Table, TableCell, Text, Value
from flagperf.report.page_runs import PageRuns
from flagperf.report.wording import interval_range, is_beside_published, metric_cell
from flagperf.spec.manifest import RowFigure
from flagperf.spec.published import PublishedResult
from flagperf.stats import median, standing_out
from flagperf.units import SCALES

# Figures of a case that measures rows, against the card's rated values.

HEADS = ("head_figure", "head_measured", "head_interval", "head_rated", "head_share", "head_published", "head_devices")


def figures(page: PageRuns) -> Iterator[Block]:
    """Show the figures of each run; then how they differ between runs of one configuration, which is more than within
    one run where processes differ."""
    repeats: dict[tuple[str, str, str], list[Run]] = {}
    for number, recorded in enumerate(page.runs, start=1):
        job = recorded.run.job
        repeats.setdefault((job.shape, job.profile, repr(job.config.values)), []).append(recorded.run)
        yield from figure_table(recorded.run, page.lang, page.mark(number), published=page.published)
    heads = tuple(Head(label(name, page.lang)) for name in ("head_figure", "head_runs", "head_median", "head_spread"))
    for runs in repeats.values():
        rows: list[tuple[TableCell, ...]] = []
        for figure in page.manifest.figures:
            metrics = [run.metric(figure.name) for run in runs]
            values = sorted(metric.value for metric in metrics if metric is not None and metric.value is not None)
            if len(values) > 1:
                name = Text(choose(figure.title, page.lang), figure.name, strong=figure.headline)
                middle = Value(f"{units.four_digits(median(values))} {figure.unit}")
                rows.append((name, Text(str(len(values))), middle, Text(_from_to(values))))
        if rows:
            yield Table(heads, tuple(rows), label("between_runs", page.lang))


def figure_table(run: Run, lang: Lang, mark: str = "", *, published: bool | None = None) -> Iterator[Block]:
    """Show the figures of a run. One whose row is not in the run at all, measured or not, is left out: a single device
    has no rows of several."""
    beside = run.manifest.references if is_beside_published(run, published) else ()
    rows = []
    for figure in run.manifest.figures:
        message = metric.message if (metric := run.metric(figure.name)) else None
        if message is None or message.code != "figure.no_row":
            rows.append(tuple(_figure_cells(run, figure, beside, lang)))
    if rows:
        title = label("figures", lang)
        heads = tuple(Head(label(name, lang)) for name in HEADS)
        yield Table(heads, tuple(rows), say("line", lang, label=title, value=mark) if mark else title)


def _figure_cells(run: Run, figure: RowFigure, beside: Sequence[PublishedResult], lang: Lang) -> Iterator[TableCell]:
    entry, metric, card = figure_entry(figure), run.metric(figure.name), run.job.device_model
    # What was published for such cards, with its configuration. All others are in a table below.
    published = ", ".join(
        f"{units.four_digits(reference.values[figure.name])} ({reference.overrides})"
        for reference in beside
        if reference.vendor == run.job.vendor
        and reference.device in (card.model, card.short_name)
        and figure.name in reference.values
    )
    cell = metric_cell(run, figure.name, entry.format)
    yield Text(choose(figure.title, lang), figure.name, strong=figure.headline)
    if isinstance(cell, Empty) or metric is None:
        yield from (cell, Text(""), Text(""), Text(""), Text(published), Text(""))
        return
    yield Value(f"{cell.text} {figure.unit}", marks=cell.marks)
    yield Text(interval_range(metric, entry.format, lang))
    peak, share = metric.inputs.get("peak"), metric.inputs.get("share")
    if peak is None:
        yield from (Empty("unknown_peak"), Empty("unknown_peak"))
    else:
        yield Value(f"{units.four_digits(peak / SCALES[figure.unit])} {figure.unit}")
        yield Empty("not_applicable") if share is None else Value(units.percent(share))
    yield Text(published)
    counted = metric.inputs.get("per_device") or metric.inputs.get("per_label") or {}
    yield Text(_from_to(sorted(counted.values())) if len(counted) > 1 else "")


def _from_to(ordered: Sequence[float]) -> str:
    return f"{units.four_digits(ordered[0])} - {units.four_digits(ordered[-1])}"


# Rows of a run that measured the same on several devices, as one line of a table.

LEAST_SHARE = 0.03
"""A device is named only if it is slower than the median by more than this share."""

NAMED_AT_MOST = 5


class RowGroup(msgspec.Struct, frozen=True):
    """Rows of equal name and labels, one for each rank."""

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
        """Return the row that stands for all: of a transfer the slowest rank's, which is as long as it takes; else that
        of the median device, and of two in the middle the one with more time, or with less of anything else."""
        ordered = sorted(self.measured, key=lambda row: row.median or 0.0, reverse=self.rows[0].unit != "s")
        if not ordered:
            return None
        return ordered[-1] if "bus_bytes" in ordered[0].work else ordered[len(ordered) // 2]

    @property
    def failed(self) -> list[MeasuredRow]:
        return [row for row in self.rows if row.median is None]

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark for row in self.measured for mark in row.marks))

    @property
    def slow(self) -> list[MeasuredRow]:
        """Return the rows that stand out among more than two."""
        times = [row.median or 0.0 for row in self.measured]
        if len(times) < 3 or self.rows[0].unit != "s":
            return []
        return [self.measured[index] for index in standing_out(times, LEAST_SHARE * median(times))]


def missing_lines(groups: Sequence[RowGroup], lang: Lang) -> Iterator[Block]:
    """Name the devices without a value where a line of a table has one of others."""
    lines = [
        say(
            "missing_row",
            lang,
            row=" ".join(group.labels.values()),
            ranks=", ".join(str(row.rank) for row in failed[:NAMED_AT_MOST]),
            missing=len(failed),
            all=len(group.rows),
            status=failed[0].status,
            problem=failed[0].problem,
        )
        for group in groups
        if group.measured and (failed := group.failed)
    ]
    if lines:
        yield Bullets(tuple(map(Text, lines)), label("some_missing", lang))


def row_groups(rows: Iterable[MeasuredRow]) -> list[RowGroup]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[MeasuredRow]] = {}
    for row in rows:
        found.setdefault((row.name, tuple(row.labels.items())), []).append(row)
    return [RowGroup(tuple(group)) for group in found.values()]


# --- cells ----------------------------------------------------------------------------------------------------------


def time_cell(group: RowGroup) -> TableCell:
    """Return the value of the median device, in a unit that fits; or why there is none."""
    row = group.middle
    if row is None:
        failed = group.failed[0]
        return Empty(failed.status, failed.problem)
    if row.unit == "share":
        return Value(units.percent(row.median or 0), marks=group.marks)
    scale, unit = scaled(row)
    return Value(f"{units.four_digits((row.median or 0) / scale)} {unit}".strip(), marks=group.marks)


def interval_cell(group: RowGroup) -> Text:
    """Return the interval of a single device, or the range of several, in the unit of the value."""
    row = group.middle
    values = sorted(each.median or 0.0 for each in group.measured)
    if row is not None and len(values) == 1:
        values = [row.interval.low, row.interval.high] if row.interval else []
    if row is None or not values:
        return Text("")
    if row.unit == "share":
        return Text(f"{units.percent(values[0])} - {units.percent(values[-1])}")
    scale, _ = scaled(row)
    return Text(_from_to([value / scale for value in values]))


def scaled(row: MeasuredRow) -> tuple[float, str]:
    """Return what the value is divided by to be shown, and its unit then."""
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
    """Return the rate of one amount of work, else of the first that the row has."""
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
    """Return a label. A size is in the largest unit that it is a whole number of."""
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
    """Return the labels that differ between the groups, or one of them: equal ones say nothing in a table."""
    names = list(dict.fromkeys(name for group in groups for name in group.labels))
    told = [name for name in names if len({group.labels.get(name, "") for group in groups}) > 1]
    return told or names[:1]


# Tables of the rows that a case measured, one table per row name. Equal rows of several devices are one line.

EXTRAS = {"burst": time_text, "power": lambda watts: f"{units.four_digits(watts)} W", "energy": energy_text}
"""Columns of rows that have them: the first second of a long row; power of the card, and energy of one call."""

BANDWIDTHS = {"algbw": "bytes", "busbw": "bus_bytes"}
"""Columns of transfers between devices, and the amount of work that each is a rate of."""

FOLDED_ROWS = 16
"""A longer table is folded on a page."""


def measured(page: PageRuns) -> Iterator[Block]:
    for number, recorded in enumerate(page.runs, start=1):
        yield from measured_tables(recorded.run, page.lang, page.mark(number))


def measured_tables(run: Run, lang: Lang, mark: str = "") -> Iterator[Block]:
    by_name: dict[str, list[RowGroup]] = {}
    for group in row_groups(run.rows):
        by_name.setdefault(group.name, []).append(group)
    for name, groups in by_name.items():
        title = say("line", lang, label=label("measured_rows", lang), value=f"{name} {mark}".rstrip())
        yield row_table(title, groups, lang, folded=len(groups) > FOLDED_ROWS)
        slow = []
        for group in groups:
            for row in group.slow:
                usual = units.four_digits(median([each.median or 0 for each in group.measured]) * 1e3)
                value, what = units.four_digits((row.median or 0) * 1e3), " ".join(group.labels.values())
                slow.append(say("slow_row", lang, rank=row.rank, row=what, value=value, median=usual))
        if slow:
            yield Bullets(tuple(map(Text, slow)), label("stand_out", lang))
        yield from missing_lines(groups, lang)


def row_table(title: str, groups: Sequence[RowGroup], lang: Lang, *, folded: bool = False) -> Table:
    names = label_names(groups)
    has_devices = any(len(group.rows) > 1 for group in groups)
    rates = ["rate"] if any(group.rows[0].work for group in groups) else []
    if any("bus_bytes" in group.rows[0].work for group in groups):
        rates = list(BANDWIDTHS)
    figures = ["median", "devices" if has_devices else "interval", "repeats", *rates, *(["share"] if rates else [])]
    extras = [name for name in EXTRAS if any(getattr(row, name) is not None for each in groups for row in each.rows)]
    heads = (*label_heads(names, lang), *(Head(label(f"head_{name}", lang)) for name in (*figures, *extras)))
    lines = []
    for group in groups:
        values = {name: getattr(group.middle, name, None) for name in extras}
        lines.append(
            (
                *(label_cell(group, name) for name in names),
                time_cell(group),
                interval_cell(group),
                Text(units.count(group.middle.num_repeats if group.middle else 0)),
                *(rate_cell(group, BANDWIDTHS.get(name)) for name in rates),
                *([share_cell(group)] if rates else []),
                *(Text("" if value is None else EXTRAS[name](value)) for name, value in values.items()),
            )
        )
    return Table(heads, tuple(lines), title, collapsed=folded)
