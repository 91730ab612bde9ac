"""Doubts about the figures that a case takes from its rows, and about single rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from flagperf import units
from flagperf.messages import message
from flagperf.metrics import MeasuredRow, Metric
from flagperf.metrics.figures import SCALES
from flagperf.plausibility.arithmetic import is_gb_for_gib
from flagperf.plausibility.rule import Check, Rule, Seen
from flagperf.spec import RowFigure
from flagperf.store.run import RecordedRun, Run
from flagperf.units import GIB

PRECISION_LABELS = ("precision", "dtype")


def _measured(run: Run) -> Iterator[tuple[RowFigure, Metric, float]]:
    """Figures with a value, in the unit of the figure."""
    for figure in run.manifest.figures:
        metric = run.metric(figure.name)
        if metric is not None and metric.value is not None:
            yield figure, metric, float(metric.value)


def _row(run: Run, metric: Metric) -> MeasuredRow | None:
    """The one that the figure stands for."""
    labels = metric.inputs.get("labels")
    found = (row for row in run.rows if row.name == metric.inputs.get("row") and row.labels == labels)
    return next((row for row in found if row.median is not None), None)


# --- against the rated value ----------------------------------------------------------------------------------------


def share_not_positive(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for _, metric, _ in _measured(recorded.run):
        share, peak = metric.inputs.get("share"), metric.inputs.get("peak")
        if (share is not None and share <= 0) or (peak is not None and peak <= 0):
            figures = {"share": "" if share is None else units.percent(share), "peak": units.four_digits(peak or 0.0)}
            yield Seen(message("doubt.share_not_positive", metric=metric.name, **figures), (metric.name,))
    for metric in recorded.run.metrics:
        is_idle = metric.name == "utilisation_mean" or metric.name.startswith("mfu")
        if is_idle and metric.value is not None and metric.value <= 0:
            share_text = units.percent(metric.value)
            yield Seen(message("doubt.not_busy", metric=metric.name, share=share_text), (metric.name,))


def ratio_does_not_recompute(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    for figure, metric, value in _measured(recorded.run):
        share, peak = metric.inputs.get("share"), metric.inputs.get("peak")
        counted = metric.inputs.get("per_device") or metric.inputs.get("per_label") or {}
        if share is None or not peak or len(counted) > 1:
            continue  # of several devices, the share is that of one
        computed = value * SCALES[figure.unit] / peak
        if abs(computed - share) * 100 > rule.limits["points"]:
            shares = {"share": units.percent(share), "computed": units.percent(computed)}
            operands = {"value": _shown(figure, value), "peak": _shown(figure, peak / SCALES[figure.unit])}
            yield Seen(
                message("doubt.ratio_does_not_recompute", what=metric.name, **shares, **operands), (metric.name,)
            )


def far_below_peak(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    """Only where the problem is large enough to keep a card busy."""
    for figure, metric, _ in _measured(recorded.run):
        share, row = metric.inputs.get("share"), _row(recorded.run, metric)
        if figure.amount != "flops" or share is None or row is None or row.work.get("flops", 0) < rule.limits["flops"]:
            continue
        if 0 < share < rule.limits["share"]:
            shares = {"share": units.percent(share), "limit": units.percent(rule.limits["share"])}
            yield Seen(message("doubt.far_below_peak", what=metric.name, **shares), (metric.name,))


def above_bandwidth(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for figure, metric, value in _measured(recorded.run):
        peak = metric.inputs.get("peak")
        if figure.unit == "GB/s" and peak and peak > 0 and value * SCALES[figure.unit] > peak:
            operands = {"value": _shown(figure, value), "peak": _shown(figure, peak / SCALES[figure.unit])}
            yield Seen(message("doubt.above_bandwidth", what=metric.name, **operands), (metric.name,))
    for index, row in enumerate(recorded.run.rows):
        if row.median and row.roofline is not None and row.share is None and row.bound_by in ("bytes", "bus_bytes"):
            share = units.percent(row.roofline / row.median)
            yield Seen(message("doubt.row_above_bandwidth", row=_named(row), share=share), (), (index,))


# --- memory ---------------------------------------------------------------------------------------------------------


def over_capacity(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    for metric, value, total in _capacities(recorded):
        if value > total * rule.limits["rounding"]:
            figures = {"used": f"{value:.2f}", "total": f"{total:.2f}"}
            yield Seen(message("doubt.over_capacity", what=metric.name, **figures), (metric.name,))


def decimal_unit(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for metric, value, total in _capacities(recorded):
        if is_gb_for_gib(value, total):
            figures = {"value": f"{value:.2f}", "total": f"{total:.2f}", "gib": f"{value * 1e9 / GIB:.2f}"}
            yield Seen(message("doubt.decimal_unit", what=metric.name, **figures), (metric.name,))


def _capacities(recorded: RecordedRun) -> Iterator[tuple[Metric, float, float]]:
    """Figures in GiB, with what the card has."""
    total = recorded.run.job.device_model.memory_bytes
    if total and recorded.run.job.memory_scope == "device":
        for figure, metric, value in _measured(recorded.run):
            if figure.unit == "GiB":
                yield metric, value, total / GIB


# --- rows -----------------------------------------------------------------------------------------------------------


def few_repeats(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    for _, metric, _ in _measured(recorded.run):
        row = _row(recorded.run, metric)
        if row is not None and row.calls and row.num_repeats < rule.limits["repeats"]:
            counts = {"repeats": row.num_repeats, "needed": units.count(rule.limits["repeats"])}
            yield Seen(message("doubt.few_repeats", metric=metric.name, **counts), (metric.name,))


def unsettled(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    measured = ((metric.name, _row(recorded.run, metric)) for _, metric, _ in _measured(recorded.run))
    names = [name for name, row in measured if row is not None and not row.settled]
    if names:
        yield Seen(message("doubt.unsettled", names=names), tuple(names))


def same_in_every_precision(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    """Figures whose peaks differ and which do not; rows that move other amounts of bytes in the same time."""
    found = [each for each in _measured(recorded.run) if "precision" in each[0].where and each[1].inputs.get("peak")]
    for (one, first, rate), (other, second, others_rate) in combinations(found, 2):
        is_same_problem = one.row == other.row and _without(one.where) == _without(other.where)
        peaks = first.inputs["peak"], second.inputs["peak"]
        has_contrast = min(peaks) > 0 and max(peaks) >= min(peaks) * rule.limits["contrast"]
        if is_same_problem and has_contrast and _is_near(rate, others_rate, rule):
            names = (first.name, second.name)
            values = [f"{rate:.5g}", f"{others_rate:.5g}"]
            yield Seen(message("doubt.same_in_every_precision", names=list(names), values=values), names)
    yield from _equal_rows(recorded.run, rule)


def _equal_rows(run: Run, rule: Rule) -> Iterator[Seen]:
    groups: dict[object, list[int]] = {}
    for index, row in enumerate(run.rows):
        if row.median and row.share and row.bound_by == "bytes" and set(PRECISION_LABELS) & row.labels.keys():
            groups.setdefault((row.name, row.rank, tuple(_without(row.labels).items())), []).append(index)
    for indices in groups.values():
        for one, other in combinations(indices, 2):
            first, second = run.rows[one], run.rows[other]
            moved = sorted((first.work.get("bytes", 0), second.work.get("bytes", 0)))
            is_other_amount = moved[0] > 0 and moved[1] >= moved[0] * rule.limits["contrast"]
            if is_other_amount and _is_near(first.median or 0.0, second.median or 0.0, rule):
                names, values = [_named(first), _named(second)], [f"{first.median:.5g}", f"{second.median:.5g}"]
                yield Seen(message("doubt.same_in_every_precision", names=names, values=values), (), (one, other))


def _is_near(one: float, other: float, rule: Rule) -> bool:
    return abs(one - other) <= rule.limits["difference"] * max(one, other)


def _without(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name not in PRECISION_LABELS}


def _named(row: MeasuredRow) -> str:
    return " ".join([row.name, *row.labels.values()])


def _shown(figure: RowFigure, value: float) -> str:
    return f"{units.four_digits(value)} {figure.unit}"


CHECKS: tuple[tuple[str, Check], ...] = (
    ("share_not_positive", share_not_positive),
    ("ratio_does_not_recompute", ratio_does_not_recompute),
    ("far_below_peak", far_below_peak),
    ("above_bandwidth", above_bandwidth),
    ("over_capacity", over_capacity),
    ("decimal_unit", decimal_unit),
    ("few_repeats", few_repeats),
    ("unsteady", unsettled),
    ("same_in_every_precision", same_in_every_precision),
)
