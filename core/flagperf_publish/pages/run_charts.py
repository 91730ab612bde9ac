"""Charts over time, ranks and devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Lang, choose, clauses, web
from flagperf.metrics.entry import DeviceKey
from flagperf.metrics.registry import entry_of
from flagperf.report.document import Band, Block, Chart, Histogram, Series, Shares
from flagperf.report.page_runs import PageRuns
from flagperf.report.sections.spread import FIGURES, rank_figures
from flagperf.report.wording import beside_memory, metric_format
from flagperf.spec.values import flatten
from flagperf.stats import median
from flagperf.units import GIB
from flagperf_publish.pages.timeline import CARD_FIGURES, PARTS, Buckets, ChartedRuns, RunCourse, means, over_cards

# Charts of runs over time: throughput with its interval, loss, what the case reports. Runs of one page share them.


MAX_RUNS = 6
"""More lines cannot be told apart."""

MAX_BANDS = 24


def course_charts(page: ChartedRuns) -> Iterator[Block]:
    yield from _throughput(page)
    yield from _losses(page)
    yield from _qualities(page)


def bucket_series(name: str, buckets: Buckets) -> Series:
    """With the extremes, where a point stands for several values."""
    has_ranges = any(bucket.low < bucket.high for bucket in buckets)
    ranges = tuple((bucket.x, bucket.low, bucket.high) for bucket in buckets) if has_ranges else ()
    return Series(name, tuple((bucket.x, bucket.middle) for bucket in buckets), ranges)


def over_time(chart: Chart, lang: Lang) -> Chart:
    """A chart over seconds, in a unit in which the longest time is a small number."""
    longest = max((x for series in chart.series for x, _ in series.points), default=0.0)
    unit, length = next((unit, length) for unit, length in TIMES if longest >= 2 * length or length == 1)
    return msgspec.structs.replace(
        chart,
        x_title=web(f"axis_{unit}", lang),
        series=tuple(_in_time(series, length) for series in chart.series),
        bands=tuple(
            msgspec.structs.replace(band, low=band.low / length, high=band.high / length) if band.axis == "x" else band
            for band in chart.bands
        ),
    )


def _in_time(series: Series, length: int) -> Series:
    points = tuple((x / length, y) for x, y in series.points)
    ranges = tuple((x / length, low, high) for x, low, high in series.ranges)
    return Series(series.name, points, ranges, series.is_limit)


TIMES = (("hours", 3600), ("minutes", 60), ("seconds", 1))


def _shown(page: ChartedRuns) -> Iterator[tuple[Run, RunCourse, str]]:
    """Run, course, and the name of its line."""
    for number, recorded in enumerate(page.runs[:MAX_RUNS], start=1):
        course = page.courses.get(recorded.run.id)
        if course is not None:
            yield recorded.run, course, page.mark(number)


# --- throughput -----------------------------------------------------------------------------------------------------


def _throughput(page: ChartedRuns) -> Iterator[Chart]:
    """Of a single run with its interval, and with waiting for data beside it."""
    shown = [(run, course, mark) for run, course, mark in _shown(page) if course.steps and course.steps.rates]
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
    bands = tuple(_bands(run, course, speed, page.lang)) if len(page.runs) == 1 else ()
    unit = entry.unit_of(run.manifest) if entry else ""
    title = web("chart_rate", page.lang)
    yield over_time(Chart(title, "", unit, tuple(series), bands=bands, remark=_remark(page, series)), page.lang)


def _bands(run: Run, course: RunCourse, speed: str, lang: Lang) -> Iterator[Band]:
    metric = run.metric(speed)
    if metric is not None and metric.interval is not None:
        yield Band(web("band_interval", lang, name=speed), metric.interval.low, metric.interval.high, "y")
    points = course.steps.rates["compute"] if course.steps else ()
    yield from evaluation_bands(course, lang, points[0].x, points[-1].x)


def evaluation_bands(course: RunCourse, lang: Lang, first: float, last: float) -> Iterator[Band]:
    """Inside the times that a chart shows, unless they would cover it."""
    for began, ended in course.evaluations if len(course.evaluations) <= MAX_BANDS else ():
        if began < last and ended > first:
            yield Band(web("band_evaluation", lang), max(began, first), min(ended, last))


def _remark(page: ChartedRuns, series: list[Series]) -> str:
    partial = [
        web("read_ranks", page.lang, count=len(course.ranks), all=run.job.world_size)
        for run, course, _ in _shown(page)
        if len(course.ranks) < run.job.world_size
    ]
    shaded = web("bucketed", page.lang) if any(each.ranges for each in series) else ""
    return clauses([shaded, *dict.fromkeys(partial)], page.lang)


# --- loss and qualities ---------------------------------------------------------------------------------------------


def _losses(page: ChartedRuns) -> Iterator[Chart]:
    series = [
        bucket_series(mark or web("chart_loss", page.lang), course.steps.losses)
        for _, course, mark in _shown(page)
        if course.steps and course.steps.losses
    ]
    if not series:
        return
    yield Chart(
        web("chart_loss", page.lang),
        web("axis_step", page.lang),
        "",
        (*series, *_reference(page)),
        x_unit="integer",
        remark=_remark(page, series),
    )


def _reference(page: PageRuns) -> Iterator[Series]:
    if page.reference is None:
        return
    known = [(point.step, point.loss) for point in page.reference.points if point.loss is not None]
    buckets = means([step for step, _ in known], [loss for _, loss in known])
    name = web("series_reference", page.lang, name=page.reference.run).strip()
    yield Series(name, tuple((bucket.x, bucket.middle) for bucket in buckets), is_limit=True)


def _qualities(page: ChartedRuns) -> Iterator[Chart]:
    """Over the steps, if a run reported a quality more than once."""
    for quality in page.manifest.qualities:
        lines = {mark or quality.name: _reported(course, quality.name) for _, course, mark in _shown(page)}
        if not any(len(points) > 1 for points in lines.values()):
            continue
        series = [Series(name, points) for name, points in lines.items() if points]
        title = choose(page.manifest.page.titles.get(quality.name, {}), page.lang) or quality.name
        unit = "" if quality.format == "fraction" else quality.unit
        targets = _targets(page, quality.name, series)
        yield Chart(title, web("axis_step", page.lang), unit, (*series, *targets), x_unit="integer")


def _reported(course: RunCourse, name: str) -> tuple[tuple[float, float], ...]:
    first = next((rank for rank in course.ranks if rank.rank == 0), None)
    return tuple((float(step), values[name]) for step, values in first.reports if name in values) if first else ()


def _targets(page: PageRuns, name: str, series: list[Series]) -> Iterator[Series]:
    target = page.manifest.target
    if target is None or target.metric != name:
        return
    steps = [x for each in series for x, _ in each.points]
    for value in dict.fromkeys(_number(dict(flatten(each.run.job.config.values)), target.key) for each in page.runs):
        if value is not None:
            shown = f"{web('series_target', page.lang)} {metric_format(page.manifest, name)(value)}"
            yield Series(shown, ((min(steps), value), (max(steps), value)), is_limit=True)


def _number(values: Mapping[str, object], key: str) -> float | None:
    value = values.get(key)
    return float(value) if isinstance(value, int | float) else None


# Charts of what the probe read of each device while the workers ran: memory, power and the like.


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
    course = page.courses.get(recorded.run.id)
    for figure in CARD_FIGURES if course else ():
        if course and course.cards.get(figure):
            yield _chart(recorded.run, course, figure, page.lang)


def _chart(run: Run, course: RunCourse, figure: str, lang: Lang) -> Chart:
    scale = 1 / GIB if figure == "used_bytes" else 1.0
    cards = course.cards[figure]
    first, last = _edges(cards)
    series = [_scaled(each, scale) for each in _lines(run, cards, lang)]
    limits = list(_memory_limits(run, cards, lang)) if figure == "used_bytes" else []
    partial = [web("read_nodes", lang, count=len(cards), all=run.job.world_size)]
    beside = beside_memory(run, lang) if figure == "used_bytes" and run.job.memory_scope == "device" else []
    chart = Chart(
        web(f"chart_{figure}", lang),
        "",
        UNITS[figure],
        (*series, *limits),
        bands=tuple(evaluation_bands(course, lang, first, last)),
        from_zero=figure in ("used_bytes", "utilisation_percent"),
        remark=clauses([*beside, *(partial if len(cards) < run.job.world_size else [])], lang),
    )
    return over_time(chart, lang)


def _lines(run: Run, cards: Courses, lang: Lang) -> Iterator[Series]:
    names = _device_names(run, lang)
    if len(cards) <= MAX_LINES:
        yield from (bucket_series(names(card), buckets) for card, buckets in sorted(cards.items()))
        return
    highest = max(cards, key=lambda card: max(bucket.high for bucket in cards[card]))
    yield bucket_series(web("series_all_cards", lang, count=len(cards)), over_cards(cards.values()))
    line = bucket_series(web("series_highest", lang, device=names(highest)), cards[highest])
    yield Series(line.name, line.points)


def _scaled(series: Series, scale: float) -> Series:
    points = tuple((x, y * scale) for x, y in series.points)
    return Series(series.name, points, tuple((x, low * scale, high * scale) for x, low, high in series.ranges))


def _device_names(run: Run, lang: Lang) -> Callable[[DeviceKey], str]:
    """Rank and id, which together tell every device of a run apart."""
    places = [(node.index, device.id) for node in run.job.nodes for device in node.devices]
    ranks = {place: rank for rank, place in enumerate(places)}

    def name(card: DeviceKey) -> str:
        return web("device", lang, rank=ranks[card], device=card[1]) if card in ranks else card[1]

    return name


def _memory_limits(run: Run, cards: Courses, lang: Lang) -> Iterator[Series]:
    """What the allocator of the fullest device reserved at most, and the capacity if it is near."""
    edges, peak = _edges(cards), max(bucket.high for buckets in cards.values() for bucket in buckets)
    allocator, total = run.metric("mem_allocator"), run.metric("mem_total")
    if allocator is not None and allocator.value is not None:
        device = str(allocator.inputs.get("device_id", ""))
        yield _level(web("series_allocator", lang, device=device), allocator.value / GIB, edges)
    if total is not None and total.value and peak >= NEAR_CAPACITY * total.value:
        yield _level(web("series_capacity", lang), total.value / GIB, edges)


def _edges(cards: Courses) -> tuple[float, float]:
    return min(buckets[0].x for buckets in cards.values()), max(buckets[-1].x for buckets in cards.values())


def _level(name: str, value: float, edges: tuple[float, float]) -> Series:
    return Series(name, tuple((x, value) for x in edges), is_limit=True)


# Charts of steps: how long they took, and what the time of a run consists of.


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
    shown = _without_few(times)
    left = len(times) - len(shown)
    slowest = {"count": units.count(left), "value": units.four_digits(times[-1])}
    partial = {"count": len(course.ranks), "all": run.job.world_size}
    remarks = [
        web("slower_steps", page.lang, **slowest) if left else "",
        web("read_ranks", page.lang, **partial) if len(course.ranks) < run.job.world_size else "",
    ]
    yield Histogram(
        web("chart_step_time", page.lang),
        "ms",
        web("axis_num_steps", page.lang),
        _bins(shown),
        tuple(_percentiles(run, shown[-1])),
        clauses(remarks, page.lang),
    )


def _without_few(ordered: Sequence[float]) -> Sequence[float]:
    """Without the slowest, if they are far from all others."""
    edge = max(1, round(len(ordered) * SHOWN_PERCENT / 100))
    is_far = ordered[-1] - ordered[edge - 1] > FAR * (ordered[edge - 1] - ordered[0])
    return ordered[:edge] if is_far else ordered


def _percentiles(run: Run, highest: float) -> Iterator[tuple[str, float]]:
    """As they were measured, over all ranks."""
    for percent in (50, 90, 99):
        metric = run.metric(f"step_time_p{percent}")
        if metric is not None and metric.value is not None and 1000 * metric.value <= highest:
            yield f"p{percent} {units.milliseconds(metric.value)} ms", 1000 * metric.value


def _bins(ordered: Sequence[float]) -> tuple[tuple[float, float, int], ...]:
    """Of equal width, without empty ones."""
    low, high = ordered[0], ordered[-1]
    num = min(NUM_BINS, max(1, len(ordered) // 2)) if high > low else 1
    width = (high - low) / num or max(abs(low), 1.0) * 0.01
    counts = [0] * num
    for value in ordered:
        counts[min(num - 1, int((value - low) / width))] += 1
    return tuple((low + index * width, low + (index + 1) * width, count) for index, count in enumerate(counts) if count)


def time_shares(page: ChartedRuns) -> Iterator[Block]:
    """One bar for each run, of its first rank that was read."""
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


# Charts of figures over ranks: one point each, so that a device that differs is seen.


MAX_POINTS = 64
"""Of more ranks, each point stands for several, with their extremes."""

COVERED = 0.05
"""The axis reaches so far around the median: differences that do not matter look so."""


def spread_charts(page: PageRuns, recorded: RecordedRun) -> Iterator[Block]:
    """For runs of at least three devices: two are compared by reading."""
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
        points = Series(web("series_values", page.lang), tuple((each.x, each.middle) for each in buckets), ranges)
        middle = median(values)
        ends = tuple((float(rank), middle) for rank in (ranks[0], ranks[-1]))
        line = Series(web("series_median", page.lang), ends, is_limit=True)
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
