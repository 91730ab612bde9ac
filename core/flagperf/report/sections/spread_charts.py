"""Charts of figures over ranks: one point each, so that a device that differs is seen."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf.metrics.buckets import means
from flagperf.report.document import Block, Chart, Series
from flagperf.report.sections.page_runs import PageRuns
from flagperf.report.sections.spread import FIGURES, rank_figures
from flagperf.report.texts import web
from flagperf.robust import median
from flagperf.store.run import RecordedRun
from flagperf.units import GIB

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
