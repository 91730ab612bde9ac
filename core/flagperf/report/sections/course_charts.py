"""Charts of runs over time: throughput with its interval, loss, what the case reports. Runs of one page share them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from flagperf.kinds import KINDS
from flagperf.metrics.buckets import Buckets, means
from flagperf.metrics.course import RunCourse
from flagperf.metrics.registry import entry_of
from flagperf.report.document import Band, Block, Chart, Series
from flagperf.report.sections.columns import metric_format
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import Lang, choose, clauses, web
from flagperf.spec import flatten
from flagperf.store.run import Run

MAX_RUNS = 6
"""More lines cannot be told apart."""


MAX_BANDS = 24


def course_charts(page: PageRuns) -> Iterator[Block]:
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


def _shown(page: PageRuns) -> Iterator[tuple[Run, RunCourse, str]]:
    """Run, course, and the name of its line."""
    for number, recorded in enumerate(page.runs[:MAX_RUNS], start=1):
        course = page.courses.get(recorded.run.id)
        if course is not None:
            yield recorded.run, course, page.mark(number)


# --- throughput -----------------------------------------------------------------------------------------------------


def _throughput(page: PageRuns) -> Iterator[Chart]:
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


def _remark(page: PageRuns, series: list[Series]) -> str:
    partial = [
        web("read_ranks", page.lang, count=len(course.ranks), all=run.job.world_size)
        for run, course, _ in _shown(page)
        if len(course.ranks) < run.job.world_size
    ]
    shaded = web("bucketed", page.lang) if any(each.ranges for each in series) else ""
    return clauses([shaded, *dict.fromkeys(partial)], page.lang)


# --- loss and qualities ---------------------------------------------------------------------------------------------


def _losses(page: PageRuns) -> Iterator[Chart]:
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


def _qualities(page: PageRuns) -> Iterator[Chart]:
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
