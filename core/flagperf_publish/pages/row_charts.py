"""Charts of measured rows, as data: sweeps over sizes, the roofline, pairs of devices, operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.messages import Lang, choose, label, say, web
from flagperf.metrics.rows import MeasuredRow
from flagperf.report.document import Bar, Bars, Block, Chart, ChartSeries, HeatMap
from flagperf.report.sections.row_tables import RATES, RowGroup, row_groups, time_text
from flagperf.spec.job import Job
from flagperf.units import SCALES

SIZE = "bytes"
"""The label that a sweep goes over."""

TOP = 10
"""So many operators are shown."""

MAX_NAME = 48
"""Characters of the name of an operator with what it was called with."""

MAX_LINES = 6
"""More lines on one chart cannot be told apart."""

MAX_CELLS = 48
"""Rows or columns of a matrix. Of more, each cell stands for a block, by its lowest value."""


def row_charts(run: Run, lang: Lang) -> Iterator[Block]:
    groups = [group for group in row_groups(run.rows) if group.middle is not None]
    yield from _figures(run, lang)
    yield from _slowest(groups, lang)
    yield from _sweeps(groups, lang)
    yield from _pairs(groups, lang)
    yield from _roofline(groups, run.job, lang)
    yield from _operators(groups, lang)


def _figures(run: Run, lang: Lang) -> Iterator[Bars]:
    """Yield the figures of the case, those of one unit together, with what is rated."""
    bars: dict[str, list[Bar]] = {}
    for figure in run.manifest.figures:
        metric, scale = run.metric(figure.name), SCALES[figure.unit]
        if metric is not None and metric.value is not None:
            peak = metric.inputs.get("peak")
            text = f"{units.four_digits(metric.value)} {figure.unit}"
            bar = Bar(choose(figure.title, lang), metric.value, text, peak / scale if peak else None)
            bars.setdefault(figure.unit, []).append(bar)
    for unit, found in bars.items():
        if len(found) > 1:
            title = say("with_unit", lang, text=label("figures", lang), unit=unit)
            yield Bars(title, tuple(found), label("head_rated", lang))


def _slowest(groups: Sequence[RowGroup], lang: Lang) -> Iterator[Bars]:
    """Yield the operators that take longest."""
    timed = [
        (group.middle.median or 0.0, group.labels)
        for group in groups
        if group.labels.get("operator") and group.middle and group.rows[0].unit == "s"
    ]
    bars = []
    for seconds, labels in sorted(timed, key=lambda each: -each[0])[:TOP]:
        words = (labels.get(name, "") for name in ("operator", "dtype", "direction", "library", "arguments"))
        name = " ".join(filter(None, words))
        bars.append(Bar(name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…", seconds, time_text(seconds)))
    if len(bars) > 1:
        yield Bars(label("operators_top", lang), tuple(bars))


Labels = tuple[tuple[str, str], ...]


def _sweeps(groups: Sequence[RowGroup], lang: Lang) -> Iterator[Chart]:
    """Yield a chart for each name of rows with sizes, with a line for each combination of the other labels."""
    lines: dict[str, dict[Labels, list[tuple[float, float]]]] = {}
    units_of: dict[str, str] = {}
    for group in groups:
        rate, unit = _rate(group.middle)
        units_of.setdefault(group.name, unit)
        if rate is not None and group.labels.get(SIZE, "").isdigit() and not _is_pair(group):
            points = lines.setdefault(group.name, {}).setdefault(_other_labels(group.labels, SIZE), [])
            points.append((float(group.labels[SIZE]), rate))
    for name, of_name in lines.items():
        several = {labels: sorted(points) for labels, points in of_name.items() if len(points) > 1}
        series = tuple(ChartSeries(_told(labels, list(several)), tuple(points)) for labels, points in several.items())
        for first in range(0, len(series), MAX_LINES):
            part = series[first : first + MAX_LINES]
            yield Chart(name, label("axis_bytes", lang), units_of[name], part, log_x=True, x_unit="bytes")


def _other_labels(labels: Mapping[str, str], *names: str) -> Labels:
    return tuple((name, value) for name, value in labels.items() if name not in names)


def _told(labels: Labels, among: Sequence[Labels]) -> str:
    """Return what tells labels apart from the others, or the first label if nothing does."""
    common = set[tuple[str, str]].intersection(*map(set, among))
    return " ".join(value for name, value in labels if (name, value) not in common) or next((v for _, v in labels), "")


def _rate(row: MeasuredRow | None) -> tuple[float | None, str]:
    """Return the rate in the unit that tables show, and this unit. It has the name of the rate where there are two."""
    for amount, scale, unit in RATES:
        if row and row.work.get(amount):
            rate = (row.rate(amount) or 0.0) / scale if row.median else None
            return rate, f"busbw, {unit}" if amount == "bus_bytes" else unit
    return None, ""


def _is_pair(group: RowGroup) -> bool:
    return "from" in group.labels and "to" in group.labels


def _pairs(groups: Sequence[RowGroup], lang: Lang) -> Iterator[HeatMap]:
    """Yield, for each kind of transfer, the rates of the largest size: from where to where."""
    kinds: dict[Labels, dict[tuple[str, str], tuple[int, float]]] = {}
    units_of: dict[Labels, str] = {}
    for group in groups:
        rate, unit = _rate(group.middle)
        if not _is_pair(group) or rate is None or not group.labels.get(SIZE, "").isdigit():
            continue
        pair, kind = (group.labels["from"], group.labels["to"]), _other_labels(group.labels, "from", "to", SIZE)
        size, cells = int(group.labels[SIZE]), kinds.setdefault(kind, {})
        units_of.setdefault(kind, unit)
        if pair not in cells or cells[pair][0] < size:
            cells[pair] = (size, rate)
    several = {kind: cells for kind, cells in kinds.items() if len(cells) > 1}

    def by_number(pair: tuple[str, str]) -> tuple[tuple[int, str], ...]:
        """Sort 10 after 9."""
        return tuple((int(name) if name.isdigit() else -1, name) for name in pair)

    for kind, cells in several.items():
        values = {pair: cells[pair][1] for pair in sorted(cells, key=by_number)}
        told = _told(kind, list(several))
        text = say("line", lang, label=web("pairs", lang), value=told) if told else web("pairs", lang)
        title = say("with_unit", lang, text=text, unit=units_of[kind])
        whole = _heat_map(title, label("axis_to", lang), label("axis_from", lang), values)
        tall, wide = _blocks(whole.rows), _blocks(whole.columns)
        if len(tall) == len(whole.rows) and len(wide) == len(whole.columns):
            yield whole
            continue
        lowest = [
            tuple(
                min((value for row in whole.values[down] for value in row[across] if value is not None), default=None)
                for across in wide
            )
            for down in tall
        ]
        yield msgspec.structs.replace(
            whole,
            rows=tuple(_range_name(whole.rows[down]) for down in tall),
            columns=tuple(_range_name(whole.columns[across]) for across in wide),
            values=tuple(lowest),
            remark=web("lowest_of_blocks", lang, rows=tall[0].stop, columns=wide[0].stop),
        )


def _heat_map(title: str, x_title: str, y_title: str, values: Mapping[tuple[str, str], float]) -> HeatMap:
    """Return a matrix of `values` by row and column, in the order of their first appearance."""
    rows = tuple(dict.fromkeys(row for row, _ in values))
    columns = tuple(dict.fromkeys(column for _, column in values))
    if set(columns) == set(rows):
        columns = rows
    cells = tuple(tuple(values.get((row, column)) for column in columns) for row in rows)
    return HeatMap(title, x_title, y_title, columns, rows, cells)


def _blocks(names: Sequence[str]) -> list[slice]:
    size = -(-len(names) // MAX_CELLS)
    return [slice(first, min(first + size, len(names))) for first in range(0, len(names), size)]


def _range_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} – {names[-1]}"


def _roofline(groups: Sequence[RowGroup], job: Job, lang: Lang) -> Iterator[Chart]:
    """Yield FLOPs per second over FLOPs per byte: a series for each peak that bounds rows, with its roof if known.

    Without any roof the chart has another name.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    labels: dict[str, list[Labels]] = {}
    for group in groups:
        row = group.middle
        flops, num_bytes = (row.work.get(amount, 0) for amount in ("flops", "bytes")) if row else (0, 0)
        if row and flops and num_bytes:
            limit = row.limits.get("flops", "")
            points.setdefault(limit, []).append((flops / num_bytes, (row.rate("flops") or 0) / 1e12))
            labels.setdefault(limit, []).append(_other_labels(group.labels, "group"))
    if not points:
        return
    among = [_other_labels(dict(each), "operator") for found in labels.values() for each in found]
    series, roofs = [], []
    peaks = {peak.row: peak.value for peak in job.peaks}
    bandwidth = peaks.get("memory_bandwidth")
    for name, found in points.items():
        names = []
        for each in labels[name]:
            told = _told(_other_labels(dict(each), "operator"), among)
            names.append(f"{dict(each).get('operator', '')} {told}".strip())
        series.append(ChartSeries(name or web("series_values", lang), tuple(found), names=tuple(names)))
        if bandwidth and name in peaks:
            corner, intensities = peaks[name] / bandwidth, [x for x, _ in found]
            ends = sorted({min(*intensities, corner), corner, max(*intensities, corner)})
            roof = tuple((x, min(peaks[name], x * bandwidth) / 1e12) for x in ends)
            roofs.append(ChartSeries(f"{name}: {label('roof', lang)}", roof, is_limit=True))
    heads = (label("roofline" if roofs else "rate_over_intensity", lang), label("axis_intensity", lang), "TFLOPS")
    yield Chart(*heads, (*series, *roofs), log_x=True, log_y=True, marks=True)


def _operators(groups: Sequence[RowGroup], lang: Lang) -> Iterator[HeatMap]:
    """Yield the share of the roofline by operator and dtype: of several shapes the lowest, which is where to look."""
    values: dict[tuple[str, str], float] = {}
    for group in groups:
        operator, row = group.labels.get("operator"), group.middle
        if operator and row and row.share is not None:
            column = " ".join(filter(None, (group.labels.get(name, "") for name in ("dtype", "direction", "library"))))
            values[operator, column] = min(row.share, values.get((operator, column), 1.0))
    if values:
        titles = (label("roofline_share", lang), label("axis_variant", lang), label("axis_operator", lang))
        yield msgspec.structs.replace(_heat_map(*titles, values), is_share=True)
