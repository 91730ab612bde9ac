"""Doubts about measured rows. Many rows of one run break a rule together, so each rule says it once, with their
number; every row has its mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from flagperf import units
from flagperf.messages import Message, message
from flagperf.metrics import MeasuredRow, Metric
from flagperf.plausibility.rule import Check, Rule, Seen, reach, value_of
from flagperf.store.run import RecordedRun, Run


def busy_host(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    """Of rows alone: the formulas of metrics mark those themselves."""
    run = recorded.run
    share, rows = value_of(run, "cpu_others"), timed(run)
    if run.job.memory_scope == "host" and share is not None and share > rule.limits["share"] and rows:
        shares = {"share": units.percent(share), "limit": units.percent(rule.limits["share"])}
        yield Seen(message("doubt.busy_host", count=len(rows), **shares), (), tuple(rows))


def few_repeats(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    rows, needed = timed(recorded.run), rule.limits["repeats"]
    few = {index: row.num_repeats for index, row in rows.items() if row.num_repeats < needed}
    if not few.keys() <= _of_figures(recorded.run, rows, lambda _metric, row: row.num_repeats < needed):
        counts = {"count": len(few), "all": len(rows), "fewest": min(few.values()), "needed": units.count(needed)}
        yield Seen(message("doubt.few_repeats_rows", **counts), (), tuple(few))


def unsteady(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    rows, limit = timed(recorded.run), rule.limits["half_width"]
    wide = {index: far for index, row in rows.items() if (far := reach(row.interval, row.median)) > limit}
    unsettled = {index for index, row in rows.items() if not row.settled}
    found = tuple(sorted(unsettled | wide.keys()))
    said = _of_figures(recorded.run, rows, lambda _metric, row: not row.settled)
    said |= wide.keys() & _of_figures(recorded.run, rows, lambda of, _row: reach(of.interval, of.value) > limit)
    if not said.issuperset(found):
        yield Seen(_unsteady(len(rows), len(unsettled), wide, limit), (), found)


def _unsteady(num_rows: int, num_unsettled: int, wide: Mapping[int, float], limit: float) -> Message:
    counts = {"all": num_rows, "unsettled": num_unsettled, "wide": len(wide)}
    if not wide:
        return message("doubt.unsettled_rows", **counts)
    shares = {"share": units.percent(max(wide.values())), "limit": units.percent(limit)}
    return message("doubt.unsteady_rows" if num_unsettled else "doubt.wide_rows", **counts, **shares)


def timed(run: Run) -> dict[int, MeasuredRow]:
    """By their index: rows with a time."""
    return {index: row for index, row in enumerate(run.rows) if row.median is not None and row.calls}


def _of_figures(run: Run, rows: Mapping[int, MeasuredRow], breaks: Callable[[Metric, MeasuredRow], bool]) -> set[int]:
    """Rows of which a figure has the same doubt, so that it is said already."""
    names = {figure.name for figure in run.manifest.figures}
    found = set()
    for metric in run.metrics:
        if metric.name not in names or metric.value is None:
            continue
        of, labels = metric.inputs.get("row"), metric.inputs.get("labels")
        first = next((index for index, row in rows.items() if row.name == of and row.labels == labels), None)
        if first is not None and breaks(metric, rows[first]):
            found.add(first)
    return found


CHECKS: tuple[tuple[str, Check], ...] = (
    ("busy_host", busy_host),
    ("few_repeats", few_repeats),
    ("unsteady", unsteady),
)
