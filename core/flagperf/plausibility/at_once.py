"""Doubts about rows of all devices at once: whether they were measured at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagperf import units
from flagperf.messages import message
from flagperf.metrics.span import Span
from flagperf.plausibility.rule import Check, Rule, Seen
from flagperf.store.run import RecordedRun, Run

ALL = ("devices", "all")
"""Label of such rows."""


def not_at_once(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    shares = {indices: _common_share(recorded.run, indices) for indices in _groups(recorded.run)}
    apart = {indices: share for indices, share in shares.items() if share < rule.limits["share"]}
    if not apart:
        return
    rows = tuple(index for indices in apart for index in indices)
    counts = {"count": len(apart), "all": len(shares)}
    figures = {"share": units.percent(min(apart.values())), "limit": units.percent(rule.limits["share"])}
    yield Seen(message("doubt.not_at_once", **counts, **figures), tuple(_figures_of(recorded.run, rows)), rows)


def _groups(run: Run) -> Iterator[tuple[int, ...]]:
    """Indices of the rows of one thing on the devices of one node: nodes have clocks of their own."""
    found: dict[object, list[int]] = {}
    for index, row in enumerate(run.rows):
        if ALL in row.labels.items() and row.window is not None and row.median is not None:
            node = row.rank // max(1, run.job.devices_per_node)
            found.setdefault((node, row.name, tuple(sorted(row.labels.items()))), []).append(index)
    return (tuple(indices) for indices in found.values() if len(indices) > 1)


def _common_share(run: Run, indices: Sequence[int]) -> float:
    """Of the longest window: how much of it all were measured in."""
    windows: list[Span] = [window for index in indices if (window := run.rows[index].window) is not None]
    common_ns = min(each.ended_ns for each in windows) - max(each.began_ns for each in windows)
    return max(0, common_ns) / max(1, *(each.length_ns for each in windows))


def _figures_of(run: Run, rows: Sequence[int]) -> Iterator[str]:
    marked = [run.rows[index] for index in rows]
    for figure in run.manifest.figures:
        metric = run.metric(figure.name)
        if (
            metric is not None
            and metric.value is not None
            and any(row.name == figure.row and figure.where.items() <= row.labels.items() for row in marked)
        ):
            yield metric.name


CHECKS: tuple[tuple[str, Check], ...] = (("not_at_once", not_at_once),)
