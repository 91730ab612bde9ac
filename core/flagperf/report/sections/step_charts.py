"""Charts of steps: how long they took, and what the time of a run consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.kinds import KINDS
from flagperf.metrics.rank_course import PARTS
from flagperf.report.document import Block, Histogram, Shares
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.texts import clauses, web
from flagperf.store.run import RecordedRun, Run

NUM_BINS = 30
LEAST_STEPS = 8
"""Fewer have no shape."""
SHOWN_PERCENT, FAR = 99.5, 0.25
"""A few steps that are slower by more than a share of the range of all others would make those one column."""


def step_histogram(page: PageRuns, recorded: RecordedRun) -> Iterator[Block]:
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


def time_shares(page: PageRuns) -> Iterator[Block]:
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
