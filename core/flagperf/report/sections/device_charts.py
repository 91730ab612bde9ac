"""Charts of what the probe read of each device while the workers ran: memory, power and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from flagperf.metrics.buckets import Buckets
from flagperf.metrics.cards import DeviceKey
from flagperf.metrics.course import CARD_FIGURES, RunCourse, over_cards
from flagperf.report.document import Block, Chart, Series
from flagperf.report.sections.course_charts import bucket_series, evaluation_bands, over_time
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.sentences import beside_memory
from flagperf.report.texts import Lang, clauses, web
from flagperf.store.run import RecordedRun, Run
from flagperf.units import GIB

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


def device_charts(page: PageRuns, recorded: RecordedRun) -> Iterator[Block]:
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
