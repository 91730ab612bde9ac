"""Doubts about measured rows, and about the figures that a case takes from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.event_files import Span
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility.rules import Check, Rule, Seen, is_gb_for_gib, reach, value_of
from flagperf.spec.manifest import RowFigure
from flagperf.units import GIB, SCALES

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


SHARE_NOT_POSITIVE = Rule(
    "share_not_positive",
    of=("run", "page"),
    effect="marked",
    metrics=("mfu*", "utilisation_mean", "figures"),
    published=(
        "-22.61 to -34.87 % of a rated value of -1: "
        "operation/benchmarks/bitwise_and/nvidia/A100_40_SXM/INT16_README.md and two more"
    ),
)


def share_not_positive(recorded: RecordedRun) -> Iterator[Seen]:
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


RATIO_DOES_NOT_RECOMPUTE = Rule(
    "ratio_does_not_recompute",
    of=("run", "page"),
    effect="marked",
    metrics=("figures",),
    limits={"points": 0.1},
    published="1390.5 GB/s of 1.8 TB/s called 75.44 %: base/benchmarks/main_memory-bandwidth/metax/C550/README.md",
)


def ratio_does_not_recompute(recorded: RecordedRun) -> Iterator[Seen]:
    for figure, metric, value in _measured(recorded.run):
        share, peak = metric.inputs.get("share"), metric.inputs.get("peak")
        counted = metric.inputs.get("per_device") or metric.inputs.get("per_label") or {}
        if share is None or not peak or len(counted) > 1:
            continue  # of several devices, the share is that of one
        computed = value * SCALES[figure.unit] / peak
        if abs(computed - share) * 100 > RATIO_DOES_NOT_RECOMPUTE.limits["points"]:
            shares = {"share": units.percent(share), "computed": units.percent(computed)}
            operands = {"value": _shown(figure, value), "peak": _shown(figure, peak / SCALES[figure.unit])}
            yield Seen(
                message("doubt.ratio_does_not_recompute", what=metric.name, **shares, **operands), (metric.name,)
            )


FAR_BELOW_PEAK = Rule(
    "far_below_peak",
    of=("run", "page"),
    effect="marked",
    metrics=("figures",),
    limits={"share": 0.25, "flops": 1e11},
    published="INT8 at 76.04 of 624 TOPS, 12.2 %: base/toolkits/computation-INT8/nvidia/A100/README.md",
)


def far_below_peak(recorded: RecordedRun) -> Iterator[Seen]:
    """Only where the problem is large enough to keep a card busy."""
    for figure, metric, _ in _measured(recorded.run):
        share, row = metric.inputs.get("share"), _row(recorded.run, metric)
        if figure.amount != "flops" or share is None or row is None:
            continue
        is_large = row.work.get("flops", 0) >= FAR_BELOW_PEAK.limits["flops"]
        if is_large and 0 < share < FAR_BELOW_PEAK.limits["share"]:
            shares = {"share": units.percent(share), "limit": units.percent(FAR_BELOW_PEAK.limits["share"])}
            yield Seen(message("doubt.far_below_peak", what=metric.name, **shares), (metric.name,))


ABOVE_BANDWIDTH = Rule(
    "above_bandwidth",
    of=("run", "page"),
    effect="marked",
    metrics=("figures", "rows"),
    published=(
        "triu in FP32, which counted twice is 1617 of 1555 GB/s: "
        "operation/benchmarks/triu/nvidia/A100_40_SXM/FP32_README.md"
    ),
)


def above_bandwidth(recorded: RecordedRun) -> Iterator[Seen]:
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


OVER_CAPACITY = Rule(
    "over_capacity",
    of=("run", "page"),
    effect="marked",
    metrics=("mem_*", "figures"),
    limits={"rounding": 1.01},
    published="65.25 of 64 GiB, 101.95 %: base/benchmarks/main_memory-capacity/metax/C550/README.md",
)


def over_capacity(recorded: RecordedRun) -> Iterator[Seen]:
    for metric, value, total in _capacities(recorded):
        if value > total * OVER_CAPACITY.limits["rounding"]:
            figures = {"used": f"{value:.2f}", "total": f"{total:.2f}"}
            yield Seen(message("doubt.over_capacity", what=metric.name, **figures), (metric.name,))


DECIMAL_UNIT = Rule(
    "decimal_unit",
    of=("run", "page"),
    effect="marked",
    metrics=("mem_used", "mem_total", "figures"),
    limits={"difference": 0.005},
    published=(
        "the same cell: 65.25 GB are 60.77 GiB, 94.95 %; and 75.44 %, which is 1390.5 of 1.8 x 1024: "
        "base/benchmarks/main_memory-bandwidth/metax/C550/README.md"
    ),
)


def decimal_unit(recorded: RecordedRun) -> Iterator[Seen]:
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


FEW_REPEATS = Rule(
    "few_repeats",
    of=("run",),
    effect="marked",
    metrics=("p_*", "token/p/s", "step_time_*", "figures", "rows"),
    limits={"steps": 20, "repeats": 30},
    published="5 calls of a product, 1 call of a copy: base/benchmarks/computation-BF16/iluvatar/BI150/README.md",
)


def few_repeats_of_figures(recorded: RecordedRun) -> Iterator[Seen]:
    for _, metric, _ in _measured(recorded.run):
        row = _row(recorded.run, metric)
        if row is not None and row.calls and row.num_repeats < FEW_REPEATS.limits["repeats"]:
            counts = {"repeats": row.num_repeats, "needed": units.count(FEW_REPEATS.limits["repeats"])}
            yield Seen(message("doubt.few_repeats", metric=metric.name, **counts), (metric.name,))


UNSTEADY = Rule(
    "unsteady",
    of=("run",),
    effect="marked",
    metrics=("p_*", "token/p/s", "figures", "rows"),
    limits={"half_width": 0.05},
    published=(
        "linear in BF16 5.7 % faster than mm on the same problem, 0.2 s against 3.5 min: "
        "operation/benchmarks/linear/nvidia/A100_40_SXM/BF16_README.md"
    ),
)


def unsettled(recorded: RecordedRun) -> Iterator[Seen]:
    measured = ((metric.name, _row(recorded.run, metric)) for _, metric, _ in _measured(recorded.run))
    names = [name for name, row in measured if row is not None and not row.settled]
    if names:
        yield Seen(message("doubt.unsettled", names=names), tuple(names))


SAME_IN_EVERY_PRECISION = Rule(
    "same_in_every_precision",
    of=("run",),
    effect="marked",
    metrics=("figures", "rows"),
    limits={"difference": 0.01, "contrast": 1.5},
    published=(
        "all takes 5811.20, 5810.18 and 5811.20 us in FP32, FP16 and BF16: operation/benchmarks/all/nvidia/A100_40_SXM"
    ),
)


def same_in_every_precision(recorded: RecordedRun) -> Iterator[Seen]:
    """Figures whose peaks differ and which do not; rows that move other amounts of bytes in the same time."""
    found = [each for each in _measured(recorded.run) if "precision" in each[0].where and each[1].inputs.get("peak")]
    for (one, first, rate), (other, second, others_rate) in combinations(found, 2):
        is_same_problem = one.row == other.row and _without(one.where) == _without(other.where)
        peaks = first.inputs["peak"], second.inputs["peak"]
        has_contrast = min(peaks) > 0 and max(peaks) >= min(peaks) * SAME_IN_EVERY_PRECISION.limits["contrast"]
        if is_same_problem and has_contrast and _is_near(rate, others_rate, SAME_IN_EVERY_PRECISION):
            names = (first.name, second.name)
            values = [f"{rate:.5g}", f"{others_rate:.5g}"]
            yield Seen(message("doubt.same_in_every_precision", names=list(names), values=values), names)
    yield from _equal_rows(recorded.run, SAME_IN_EVERY_PRECISION)


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


# --- all devices at once --------------------------------------------------------------------------------------------

ALL = ("devices", "all")
"""Label of such rows."""


NOT_AT_ONCE = Rule(
    "not_at_once",
    of=("run",),
    effect="marked",
    metrics=("figures",),
    limits={"share": 0.9},
    published=(
        "a product on one card at 277 W beside one on eight at 338 W, both as the card's: "
        "base/benchmarks/computation-FP16"
    ),
)


def not_at_once(recorded: RecordedRun) -> Iterator[Seen]:
    shares = {indices: _common_share(recorded.run, indices) for indices in _groups(recorded.run)}
    apart = {indices: share for indices, share in shares.items() if share < NOT_AT_ONCE.limits["share"]}
    if not apart:
        return
    rows = tuple(index for indices in apart for index in indices)
    counts = {"count": len(apart), "all": len(shares)}
    figures = {"share": units.percent(min(apart.values())), "limit": units.percent(NOT_AT_ONCE.limits["share"])}
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


# --- rows by themselves: many of one run break a rule together, so each rule says it once, and every row has its mark -


BUSY_HOST = Rule(
    "busy_host",
    of=("run",),
    effect="marked",
    metrics=("figures", "rows"),
    limits={"share": 0.1},
    published="300 s of busy waiting on the host beside what is measured: base/benchmarks/main_memory-capacity",
)


def busy_host(recorded: RecordedRun) -> Iterator[Seen]:
    """Of rows alone: the formulas of metrics mark those themselves."""
    run = recorded.run
    share, rows = value_of(run, "cpu_others"), timed(run)
    if run.job.memory_scope == "host" and share is not None and share > BUSY_HOST.limits["share"] and rows:
        shares = {"share": units.percent(share), "limit": units.percent(BUSY_HOST.limits["share"])}
        yield Seen(message("doubt.busy_host", count=len(rows), **shares), (), tuple(rows))


def few_repeats_of_rows(recorded: RecordedRun) -> Iterator[Seen]:
    rows, needed = timed(recorded.run), FEW_REPEATS.limits["repeats"]
    few = {index: row.num_repeats for index, row in rows.items() if row.num_repeats < needed}
    if not few.keys() <= _said_of_figures(recorded.run, rows, lambda _metric, row: row.num_repeats < needed):
        counts = {"count": len(few), "all": len(rows), "fewest": min(few.values()), "needed": units.count(needed)}
        yield Seen(message("doubt.few_repeats_rows", **counts), (), tuple(few))


def unsteady_rows(recorded: RecordedRun) -> Iterator[Seen]:
    rows, limit = timed(recorded.run), UNSTEADY.limits["half_width"]
    wide = {index: far for index, row in rows.items() if (far := reach(row.interval, row.median)) > limit}
    unsettled = {index for index, row in rows.items() if not row.settled}
    found = tuple(sorted(unsettled | wide.keys()))
    said = _said_of_figures(recorded.run, rows, lambda _metric, row: not row.settled)
    said |= wide.keys() & _said_of_figures(recorded.run, rows, lambda of, _row: reach(of.interval, of.value) > limit)
    if not said.issuperset(found):
        yield Seen(_unsteady_words(len(rows), len(unsettled), wide, limit), (), found)


def _unsteady_words(num_rows: int, num_unsettled: int, wide: Mapping[int, float], limit: float) -> Message:
    counts = {"all": num_rows, "unsettled": num_unsettled, "wide": len(wide)}
    if not wide:
        return message("doubt.unsettled_rows", **counts)
    shares = {"share": units.percent(max(wide.values())), "limit": units.percent(limit)}
    return message("doubt.unsteady_rows" if num_unsettled else "doubt.wide_rows", **counts, **shares)


def timed(run: Run) -> dict[int, MeasuredRow]:
    """By their index: rows with a time."""
    return {index: row for index, row in enumerate(run.rows) if row.median is not None and row.calls}


def _said_of_figures(
    run: Run, rows: Mapping[int, MeasuredRow], breaks: Callable[[Metric, MeasuredRow], bool]
) -> set[int]:
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


CHECKS: tuple[tuple[Rule, Check], ...] = (
    (SHARE_NOT_POSITIVE, share_not_positive),
    (RATIO_DOES_NOT_RECOMPUTE, ratio_does_not_recompute),
    (FAR_BELOW_PEAK, far_below_peak),
    (ABOVE_BANDWIDTH, above_bandwidth),
    (OVER_CAPACITY, over_capacity),
    (DECIMAL_UNIT, decimal_unit),
    (FEW_REPEATS, few_repeats_of_figures),
    (UNSTEADY, unsettled),
    (SAME_IN_EVERY_PRECISION, same_in_every_precision),
    (NOT_AT_ONCE, not_at_once),
    (BUSY_HOST, busy_host),
    (FEW_REPEATS, few_repeats_of_rows),
    (UNSTEADY, unsteady_rows),
)
