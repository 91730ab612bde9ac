"""Charts over time, ranks and devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Lang, choose, clauses, web
from flagperf.metrics.entry import DeviceKey
from flagperf.metrics.registry import entry_of
from flagperf.report.document import Band, Block, Chart, ChartSeries, Histogram, Shares
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.spread import FIGURES, rank_figures
from flagperf.report.wording import beside_memory, metric_format
from flagperf.spec.values import flatten
from flagperf.stats import median
from flagperf.units import GIB
from flagperf_publish.pages.timeline import (
    CARD_FIGURES,
    PARTS,
    Bucket,
    Buckets,
    ChartedRuns,
    RunCourse,
    means,
    over_cards,
)

# --- over time: throughput with its interval, loss, what the case reports; the runs of a page share them --------------

MAX_RUNS = 6
"""More lines cannot be told apart."""

MAX_BANDS = 24


def course_charts(page: ChartedRuns) -> Iterator[Block]:
    shown = []
    for number, recorded in enumerate(page.runs[:MAX_RUNS], start=1):
        if recorded.run.id in page.courses:
            shown.append((recorded.run, page.courses[recorded.run.id], page.mark(number)))
    yield from _throughput(page, shown)
    yield from _losses(page, shown)
    yield from _qualities(page, shown)


def bucket_series(name: str, buckets: Buckets) -> ChartSeries:
    """Return a line, with the extremes where a point stands for several values."""
    has_ranges = any(bucket.low < bucket.high for bucket in buckets)
    ranges = tuple((bucket.x, bucket.low, bucket.high) for bucket in buckets) if has_ranges else ()
    return ChartSeries(name, tuple((bucket.x, bucket.middle) for bucket in buckets), ranges)


def over_time(chart: Chart, lang: Lang) -> Chart:
    """Return a chart over seconds in a unit in which the longest time is a small number."""
    longest = max((x for series in chart.series for x, _ in series.points), default=0.0)
    unit, length = next((unit, length) for unit, length in TIMES if longest >= 2 * length or length == 1)
    return msgspec.structs.replace(
        chart,
        x_title=web(f"axis_{unit}", lang),
        series=tuple(
            msgspec.structs.replace(
                each,
                points=tuple((x / length, y) for x, y in each.points),
                ranges=tuple((x / length, low, high) for x, low, high in each.ranges),
            )
            for each in chart.series
        ),
        bands=tuple(
            msgspec.structs.replace(band, low=band.low / length, high=band.high / length) if band.axis == "x" else band
            for band in chart.bands
        ),
    )


TIMES = (("hours", 3600), ("minutes", 60), ("seconds", 1))

ShownRun = tuple[Run, RunCourse, str]
"""A run, its values over time, and the name of its line."""


def _throughput(page: ChartedRuns, runs: Sequence[ShownRun]) -> Iterator[Chart]:
    """Yield the throughput; of a single run with its interval, and with waiting for data beside it."""
    shown = [(run, course, mark) for run, course, mark in runs if course.steps and course.steps.rates]
    if not shown:
        return
    run, course, _ = shown[0]
    speed = KINDS[run.manifest.kind].timed
    entry = entry_of(run.manifest, speed)
    series = [
        bucket_series(mark or web(f"series_{name}", page.lang), rates)
        for _, each, mark in shown
        for name, rates in (each.steps.rates if each.steps else {}).items()
        if name == "compute" or not mark
    ]
    bands = []
    if len(page.runs) == 1:
        metric, points = run.metric(speed), course.steps.rates["compute"] if course.steps else ()
        if metric is not None and metric.interval is not None:
            name = web("band_interval", page.lang, name=speed)
            bands.append(Band(name, metric.interval.low, metric.interval.high, "y"))
        bands += evaluation_bands(course, page.lang, points[0].x, points[-1].x)
    unit = entry.unit_of(run.manifest) if entry else ""
    remark = _remark(page.lang, runs, series)
    chart = Chart(web("chart_rate", page.lang), "", unit, tuple(series), bands=tuple(bands), remark=remark)
    yield over_time(chart, page.lang)


def evaluation_bands(course: RunCourse, lang: Lang, first: float, last: float) -> Iterator[Band]:
    """Yield the evaluations inside the times that a chart shows, unless they would cover it."""
    for began, ended in course.evaluations if len(course.evaluations) <= MAX_BANDS else ():
        if began < last and ended > first:
            yield Band(web("band_evaluation", lang), max(began, first), min(ended, last))


def _remark(lang: Lang, shown: Sequence[ShownRun], series: Sequence[ChartSeries]) -> str:
    partial = [
        web("read_ranks", lang, count=len(course.ranks), all=run.job.world_size)
        for run, course, _ in shown
        if len(course.ranks) < run.job.world_size
    ]
    shaded = web("bucketed", lang) if any(each.ranges for each in series) else ""
    return clauses([shaded, *dict.fromkeys(partial)], lang)


def _losses(page: ChartedRuns, shown: Sequence[ShownRun]) -> Iterator[Chart]:
    title = web("chart_loss", page.lang)
    series = [
        bucket_series(mark or title, course.steps.losses)
        for _, course, mark in shown
        if course.steps and course.steps.losses
    ]
    if not series:
        return
    remark = _remark(page.lang, shown, series)
    if page.reference is not None:
        known = [(point.step, point.loss) for point in page.reference.points if point.loss is not None]
        buckets = means([step for step, _ in known], [loss for _, loss in known])
        name = web("series_reference", page.lang, name=page.reference.run).strip()
        series.append(ChartSeries(name, tuple((bucket.x, bucket.middle) for bucket in buckets), is_limit=True))
    yield Chart(title, web("axis_step", page.lang), "", tuple(series), x_unit="integer", remark=remark)


def _qualities(page: ChartedRuns, shown: Sequence[ShownRun]) -> Iterator[Chart]:
    """Yield qualities over the steps, if a run reported one more than once."""
    for quality in page.manifest.qualities:
        lines = {}
        for _, course, mark in shown:
            reports = next((rank.reports for rank in course.ranks if rank.rank == 0), ())
            points = tuple((float(step), values[quality.name]) for step, values in reports if quality.name in values)
            lines[mark or quality.name] = points
        if not any(len(points) > 1 for points in lines.values()):
            continue
        series = [ChartSeries(name, points) for name, points in lines.items() if points]
        target = page.manifest.target
        if target is not None and target.metric == quality.name:
            steps = [x for each in series for x, _ in each.points]
            form = metric_format(page.manifest, quality.name)
            wanted = [dict(flatten(recorded.run.job.config.values)).get(target.key) for recorded in page.runs]
            for value in dict.fromkeys(float(each) for each in wanted if isinstance(each, int | float)):
                shown_target = f"{web('series_target', page.lang)} {form(value)}"
                series.append(ChartSeries(shown_target, ((min(steps), value), (max(steps), value)), is_limit=True))
        title = choose(page.manifest.page.titles.get(quality.name, {}), page.lang) or quality.name
        unit = "" if quality.format == "fraction" else quality.unit
        yield Chart(title, web("axis_step", page.lang), unit, tuple(series), x_unit="integer")


# --- devices: what the probe read of each while the workers ran ------------------------------------------------------

MAX_LINES = 6
"""Of more devices, the median is shown, with the extremes of all and the line of the highest."""

NEAR_CAPACITY = 0.4
"""The capacity is drawn only where the highest use is at least this share of it: otherwise all lines would be flat."""

UNITS = {
    "used_bytes": "GiB",
    "power_watts": "W",
    "utilisation_percent": "%",
    "temperature_celsius": "°C",
    "clock_mhz": "MHz",
}

Courses = Mapping[DeviceKey, Buckets]


def device_charts(page: ChartedRuns, recorded: RecordedRun) -> Iterator[Block]:
    run, lang, course = recorded.run, page.lang, page.courses.get(recorded.run.id)
    for figure in CARD_FIGURES if course else ():
        cards = course.cards.get(figure) if course else None
        if not course or not cards:
            continue
        first = min(buckets[0].x for buckets in cards.values())
        last = max(buckets[-1].x for buckets in cards.values())
        is_memory = figure == "used_bytes"
        remarks = beside_memory(run, lang) if is_memory and run.job.memory_scope == "device" else []
        if len(cards) < run.job.world_size:
            remarks = [*remarks, web("read_nodes", lang, count=len(cards), all=run.job.world_size)]
        lines = list(_lines(run, cards, lang, 1 / GIB if is_memory else 1.0))
        if is_memory:
            peak = max(bucket.high for buckets in cards.values() for bucket in buckets)
            allocator, total = run.metric("mem_allocator"), run.metric("mem_total")
            if allocator is not None and allocator.value is not None:  # the most of the fullest device
                name = web("series_allocator", lang, device=str(allocator.inputs.get("device_id", "")))
                gib = allocator.value / GIB
                lines.append(ChartSeries(name, ((first, gib), (last, gib)), is_limit=True))
            if total is not None and total.value and peak >= NEAR_CAPACITY * total.value:
                gib = total.value / GIB
                lines.append(ChartSeries(web("series_capacity", lang), ((first, gib), (last, gib)), is_limit=True))
        chart = Chart(
            web(f"chart_{figure}", lang),
            "",
            UNITS[figure],
            tuple(lines),
            bands=tuple(evaluation_bands(course, lang, first, last)),
            from_zero=figure in ("used_bytes", "utilisation_percent"),
            remark=clauses(remarks, lang),
        )
        yield over_time(chart, lang)


def _lines(run: Run, cards: Courses, lang: Lang, scale: float) -> Iterator[ChartSeries]:
    """Yield a line for each device. Its rank and id together tell it apart from all others of the run."""
    places = [(node.index, device.id) for node in run.job.nodes for device in node.devices]
    names = {card: card[1] for card in cards} | {
        place: web("device", lang, rank=rank, device=place[1]) for rank, place in enumerate(places)
    }
    scaled = {
        card: tuple(Bucket(each.x, each.low * scale, each.middle * scale, each.high * scale) for each in buckets)
        for card, buckets in cards.items()
    }
    if len(cards) <= MAX_LINES:
        yield from (bucket_series(names[card], scaled[card]) for card in sorted(cards))
        return
    highest = max(cards, key=lambda card: max(bucket.high for bucket in cards[card]))
    yield bucket_series(web("series_all_cards", lang, count=len(cards)), over_cards(scaled.values()))
    points = tuple((each.x, each.middle) for each in scaled[highest])
    yield ChartSeries(web("series_highest", lang, device=names[highest]), points)


# --- steps: how long they took, and what the time of a run consists of -----------------------------------------------

NUM_BINS = 30

LEAST_STEPS = 8
"""Fewer have no shape."""

SHOWN_PERCENT, FAR = 99.5, 0.25
"""A few steps that are slower by more than a share of the range of all others would make those one column."""


def step_histogram(page: ChartedRuns, recorded: RecordedRun) -> Iterator[Block]:
    run, course = recorded.run, page.courses.get(recorded.run.id)
    if course is None or course.steps is None or len(course.steps.computes) < LEAST_STEPS:
        return
    times = sorted(1000 * seconds for seconds in course.steps.computes)
    edge = max(1, round(len(times) * SHOWN_PERCENT / 100))
    is_far = times[-1] - times[edge - 1] > FAR * (times[edge - 1] - times[0])
    shown = times[:edge] if is_far else times
    remarks = []
    if left := len(times) - len(shown):
        slowest = {"count": units.count(left), "value": units.four_digits(times[-1])}
        remarks.append(web("slower_steps", page.lang, **slowest))
    if len(course.ranks) < run.job.world_size:
        remarks.append(web("read_ranks", page.lang, count=len(course.ranks), all=run.job.world_size))
    percentiles = []  # as they were measured, over all ranks
    for percent in (50, 90, 99):
        metric = run.metric(f"step_time_p{percent}")
        if metric is not None and metric.value is not None and 1000 * metric.value <= shown[-1]:
            percentiles.append((f"p{percent} {units.milliseconds(metric.value)} ms", 1000 * metric.value))
    low, high = shown[0], shown[-1]
    num_bins = min(NUM_BINS, max(1, len(shown) // 2)) if high > low else 1
    width = (high - low) / num_bins or max(abs(low), 1.0) * 0.01
    counts = Counter(min(num_bins - 1, int((value - low) / width)) for value in shown)
    yield Histogram(
        web("chart_step_time", page.lang),
        "ms",
        web("axis_num_steps", page.lang),
        tuple((low + index * width, low + (index + 1) * width, count) for index, count in sorted(counts.items())),
        tuple(percentiles),
        clauses(remarks, page.lang),
    )


def time_shares(page: ChartedRuns) -> Iterator[Block]:
    """Yield one bar for each run, of its first rank that was read."""
    rows, texts = [], []
    if not KINDS[page.manifest.kind].has_steps:
        return
    for number, recorded in enumerate(page.runs, start=1):
        course = page.courses.get(recorded.run.id)
        rank = course.ranks[0] if course and course.ranks else None
        if rank is not None and rank.parts:
            amounts = tuple(rank.parts[name] for name in PARTS)
            rows.append((page.mark(number) or web("time_of_rank", page.lang, rank=rank.rank), amounts))
            texts.append(tuple(units.seconds(amount) for amount in amounts))
    if rows:
        parts = tuple(web(f"part_{name}", page.lang) for name in PARTS)
        yield Shares(web("chart_time", page.lang), parts, tuple(rows), tuple(texts))


# --- figures over ranks: one point each, so that a device that differs is seen ----------------------------------------

MAX_POINTS = 64
"""Of more ranks, each point stands for several, with their extremes."""

COVERED = 0.05
"""The axis reaches so far around the median: differences that do not matter look so."""


def spread_charts(page: PageRuns, recorded: RecordedRun) -> Iterator[Block]:
    """Yield a chart of each figure, for runs of at least three devices: two are compared by reading."""
    run = recorded.run
    for figure in FIGURES if run.has_results and run.job.world_size > 2 else ():
        found = rank_figures(run, figure)
        if len(found) < 2 or len(set(found.values())) == 1:
            continue
        scale = 1000.0 if figure.shown_unit == "ms" else 1 / GIB if figure.shown_unit == "GiB" else 1.0
        ranks, values = list(found), [value * scale for value in found.values()]
        buckets = means(ranks, values, MAX_POINTS)
        has_ranges = len(ranks) > MAX_POINTS
        ranges = tuple((bucket.x, bucket.low, bucket.high) for bucket in buckets) if has_ranges else ()
        points = ChartSeries(web("series_values", page.lang), tuple((each.x, each.middle) for each in buckets), ranges)
        middle = median(values)
        ends = tuple((float(rank), middle) for rank in (ranks[0], ranks[-1]))
        line = ChartSeries(web("series_median", page.lang), ends, is_limit=True)
        yield Chart(
            web("chart_over_ranks", page.lang, figure=figure.title(page.lang)),
            web("axis_rank", page.lang),
            figure.shown_unit,
            (points, line),
            marks=True,
            x_unit="integer",
            covers=((1 - COVERED) * middle, (1 + COVERED) * middle),
            remark=web("bucketed", page.lang) if has_ranges else "",
        )
