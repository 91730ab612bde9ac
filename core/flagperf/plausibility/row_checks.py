"""Doubts about measured rows, and about the figures that a case takes from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, combinations

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.event_files import Span
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility.rules import Check, Rule, Seen, is_gb_for_gib, reach, seen, value_of
from flagperf.spec.manifest import RowFigure
from flagperf.units import GIB, SCALES

PRECISION_LABELS = ("precision", "dtype")


def _measured(run: Run) -> Iterator[tuple[RowFigure, Metric, float]]:
    """Yield the figures that have a value, in the unit of the figure."""
    for figure in run.manifest.figures:
        metric = run.metric(figure.name)
        if metric is not None and metric.value is not None:
            yield figure, metric, float(metric.value)


def _row(run: Run, metric: Metric) -> MeasuredRow | None:
    """Return the row that the figure stands for."""
    labels = metric.inputs.get("labels")
    found = (row for row in run.rows if row.name == metric.inputs.get("row") and row.labels == labels)
    return next((row for row in found if row.median is not None), None)


# --- against the rated value ----------------------------------------------------------------------------------------


SHARE_NOT_POSITIVE = Rule(
    "share_not_positive",
    "-22.61 to -34.87 % of a rated value of -1: "
    "operation/benchmarks/bitwise_and/nvidia/A100_40_SXM/INT16_README.md and two more",
    of=("run", "page"),
    metrics=("mfu*", "utilisation_mean", "figures"),
)


def share_not_positive(run: Run) -> Iterator[Seen]:
    for _, metric, _ in _measured(run):
        share, peak = metric.inputs.get("share"), metric.inputs.get("peak")
        if (share is not None and share <= 0) or (peak is not None and peak <= 0):
            figures = {"share": "" if share is None else units.percent(share), "peak": units.four_digits(peak or 0.0)}
            yield seen("doubt.share_not_positive", (metric.name,), metric=metric.name, **figures)
    for metric in run.metrics:
        is_share = metric.name == "utilisation_mean" or metric.name.startswith("mfu")
        if is_share and metric.value is not None and metric.value <= 0:
            share = units.percent(metric.value)
            yield seen("doubt.not_busy", (metric.name,), metric=metric.name, share=share)


RATIO_DOES_NOT_RECOMPUTE = Rule(
    "ratio_does_not_recompute",
    "1390.5 GB/s of 1.8 TB/s called 75.44 %: base/benchmarks/main_memory-bandwidth/metax/C550/README.md",
    of=("run", "page"),
    metrics=("figures",),
    limits={"points": 0.1},
)


def ratio_does_not_recompute(run: Run) -> Iterator[Seen]:
    for figure, metric, value in _measured(run):
        share, peak = metric.inputs.get("share"), metric.inputs.get("peak")
        counted = metric.inputs.get("per_device") or metric.inputs.get("per_label") or {}
        if share is None or not peak or len(counted) > 1:
            continue  # of several devices, the share is that of one
        computed = value * SCALES[figure.unit] / peak
        if abs(computed - share) * 100 > RATIO_DOES_NOT_RECOMPUTE.limits["points"]:
            shares = {"share": units.percent(share), "computed": units.percent(computed)}
            operands = {"value": _shown(figure, value), "peak": _shown(figure, peak / SCALES[figure.unit])}
            yield seen("doubt.ratio_does_not_recompute", (metric.name,), what=metric.name, **shares, **operands)


FAR_BELOW_PEAK = Rule(
    "far_below_peak",
    "INT8 at 76.04 of 624 TOPS, 12.2 %: base/toolkits/computation-INT8/nvidia/A100/README.md",
    of=("run", "page"),
    metrics=("figures",),
    limits={"share": 0.25, "flops": 1e11},
)


def far_below_peak(run: Run) -> Iterator[Seen]:
    """Look only where the problem is large enough to keep a card busy."""
    for figure, metric, _ in _measured(run):
        share, row = metric.inputs.get("share"), _row(run, metric)
        if figure.amount != "flops" or share is None or row is None:
            continue
        is_large = row.work.get("flops", 0) >= FAR_BELOW_PEAK.limits["flops"]
        if is_large and 0 < share < FAR_BELOW_PEAK.limits["share"]:
            shares = {"share": units.percent(share), "limit": units.percent(FAR_BELOW_PEAK.limits["share"])}
            yield seen("doubt.far_below_peak", (metric.name,), what=metric.name, **shares)


ABOVE_BANDWIDTH = Rule(
    "above_bandwidth",
    "triu in FP32, which counted twice is 1617 of 1555 GB/s: "
    "operation/benchmarks/triu/nvidia/A100_40_SXM/FP32_README.md",
    of=("run", "page"),
    metrics=("figures", "rows"),
)


def above_bandwidth(run: Run) -> Iterator[Seen]:
    for figure, metric, value in _measured(run):
        peak = metric.inputs.get("peak")
        if figure.unit == "GB/s" and peak and peak > 0 and value * SCALES[figure.unit] > peak:
            operands = {"value": _shown(figure, value), "peak": _shown(figure, peak / SCALES[figure.unit])}
            yield seen("doubt.above_bandwidth", (metric.name,), what=metric.name, **operands)
    for index, row in enumerate(run.rows):
        if row.median and row.roofline is not None and row.share is None and row.bound_by in ("bytes", "bus_bytes"):
            share = units.percent(row.roofline / row.median)
            yield seen("doubt.row_above_bandwidth", (), (index,), row=_named(row), share=share)


# --- memory ---------------------------------------------------------------------------------------------------------


OVER_CAPACITY = Rule(
    "over_capacity",
    "65.25 of 64 GiB, 101.95 %: base/benchmarks/main_memory-capacity/metax/C550/README.md",
    of=("run", "page"),
    metrics=("mem_*", "figures"),
    limits={"rounding": 1.01},
)


def over_capacity(run: Run) -> Iterator[Seen]:
    for metric, value, total in _capacities(run):
        if value > total * OVER_CAPACITY.limits["rounding"]:
            used_of_total = {"used": f"{value:.2f}", "total": f"{total:.2f}"}
            yield seen("doubt.over_capacity", (metric.name,), what=metric.name, **used_of_total)


DECIMAL_UNIT = Rule(
    "decimal_unit",
    "the same cell: 65.25 GB are 60.77 GiB, 94.95 %; and 75.44 %, which is 1390.5 of 1.8 x 1024: "
    "base/benchmarks/main_memory-bandwidth/metax/C550/README.md",
    of=("run", "page"),
    metrics=("mem_used", "mem_total", "figures"),
    limits={"difference": 0.005},
)


def decimal_unit(run: Run) -> Iterator[Seen]:
    for metric, value, total in _capacities(run):
        if is_gb_for_gib(value, total):
            figures = {"value": f"{value:.2f}", "total": f"{total:.2f}", "gib": f"{value * 1e9 / GIB:.2f}"}
            yield seen("doubt.decimal_unit", (metric.name,), what=metric.name, **figures)


def _capacities(run: Run) -> Iterator[tuple[Metric, float, float]]:
    """Yield the figures in GiB, with what the card has."""
    total = run.job.device_model.memory_bytes
    if total and run.job.memory_scope == "device":
        for figure, metric, value in _measured(run):
            if figure.unit == "GiB":
                yield metric, value, total / GIB


# --- rows -----------------------------------------------------------------------------------------------------------


FEW_REPEATS = Rule(
    "few_repeats",
    "5 calls of a product, 1 call of a copy: base/benchmarks/computation-BF16/iluvatar/BI150/README.md",
    metrics=("p_*", "token/p/s", "step_time_*", "figures", "rows"),
    limits={"steps": 20, "repeats": 30},
)


def few_repeats_of_figures(run: Run) -> Iterator[Seen]:
    for _, metric, _ in _measured(run):
        row = _row(run, metric)
        if row is not None and row.calls and row.num_repeats < FEW_REPEATS.limits["repeats"]:
            counts = {"repeats": row.num_repeats, "needed": units.count(FEW_REPEATS.limits["repeats"])}
            yield seen("doubt.few_repeats", (metric.name,), metric=metric.name, **counts)


UNSTEADY = Rule(
    "unsteady",
    "linear in BF16 5.7 % faster than mm on the same problem, 0.2 s against 3.5 min: "
    "operation/benchmarks/linear/nvidia/A100_40_SXM/BF16_README.md",
    metrics=("p_*", "token/p/s", "figures", "rows"),
    limits={"half_width": 0.05},
)


def unsettled(run: Run) -> Iterator[Seen]:
    measured = ((metric.name, _row(run, metric)) for _, metric, _ in _measured(run))
    names = [name for name, row in measured if row is not None and not row.settled]
    if names:
        yield seen("doubt.unsettled", names, names=names)


SAME_IN_EVERY_PRECISION = Rule(
    "same_in_every_precision",
    "all takes 5811.20, 5810.18 and 5811.20 us in FP32, FP16 and BF16: operation/benchmarks/all/nvidia/A100_40_SXM",
    metrics=("figures", "rows"),
    limits={"difference": 0.01, "contrast": 1.5},
)


def same_in_every_precision(run: Run) -> Iterator[Seen]:
    """Look for equal figures whose peaks differ, and for rows that move other amounts of bytes in the same time."""
    contrast = SAME_IN_EVERY_PRECISION.limits["contrast"]
    figures = [each for each in _measured(run) if "precision" in each[0].where and each[1].inputs.get("peak")]
    for (one, metric, rate), (other, others_metric, others_rate) in combinations(figures, 2):
        is_same_problem = one.row == other.row and _without(one.where) == _without(other.where)
        low, high = sorted((metric.inputs["peak"], others_metric.inputs["peak"]))
        if is_same_problem and low > 0 and high >= low * contrast and _are_near(rate, others_rate):
            names, values = [metric.name, others_metric.name], [f"{rate:.5g}", f"{others_rate:.5g}"]
            yield seen("doubt.same_in_every_precision", names, names=names, values=values)
    groups: dict[object, list[tuple[int, MeasuredRow, float]]] = {}
    for index, row in enumerate(run.rows):
        if row.median and row.share and row.bound_by == "bytes" and set(PRECISION_LABELS) & row.labels.keys():
            problem = row.name, row.rank, tuple(_without(row.labels).items())
            groups.setdefault(problem, []).append((index, row, row.median))
    for (index, row, seconds), (others, another, others_seconds) in chain.from_iterable(
        combinations(group, 2) for group in groups.values()
    ):
        low, high = sorted((row.work.get("bytes", 0), another.work.get("bytes", 0)))
        if low > 0 and high >= low * contrast and _are_near(seconds, others_seconds):
            names, values = [_named(row), _named(another)], [f"{seconds:.5g}", f"{others_seconds:.5g}"]
            yield seen("doubt.same_in_every_precision", (), (index, others), names=names, values=values)


def _are_near(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_IN_EVERY_PRECISION.limits["difference"] * max(one, other)


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
    "a product on one card at 277 W beside one on eight at 338 W, both as the card's: base/benchmarks/computation-FP16",
    metrics=("figures",),
    limits={"share": 0.9},
)


def not_at_once(run: Run) -> Iterator[Seen]:
    """Look at rows of one thing on the devices of one node: nodes have clocks of their own. Of the longest window of
    such rows, the share in which all of them were measured has to be large."""
    windows: dict[object, dict[int, Span]] = {}
    for index, row in enumerate(run.rows):
        if ALL in row.labels.items() and row.window is not None and row.median is not None:
            node = row.rank // max(1, run.job.devices_per_node)
            windows.setdefault((node, row.name, tuple(sorted(row.labels.items()))), {})[index] = row.window
    shares: dict[tuple[int, ...], float] = {}
    for group in windows.values():
        if len(group) > 1:
            common_ns = min(each.ended_ns for each in group.values()) - max(each.began_ns for each in group.values())
            shares[tuple(group)] = max(0, common_ns) / max(1, *(each.length_ns for each in group.values()))
    apart = {indices: share for indices, share in shares.items() if share < NOT_AT_ONCE.limits["share"]}
    if not apart:
        return
    indices = [index for group in apart for index in group]
    names = [
        figure.name
        for figure, _, _ in _measured(run)
        if any(
            row.name == figure.row and figure.where.items() <= row.labels.items()
            for row in (run.rows[index] for index in indices)
        )
    ]
    counts = {"count": len(apart), "all": len(shares)}
    limits = {"share": units.percent(min(apart.values())), "limit": units.percent(NOT_AT_ONCE.limits["share"])}
    yield seen("doubt.not_at_once", names, indices, **counts, **limits)


# --- rows by themselves: many of one run break a rule together, so each rule says it once, and every row has its mark -


BUSY_HOST = Rule(
    "busy_host",
    "300 s of busy waiting on the host beside what is measured: base/benchmarks/main_memory-capacity",
    metrics=("figures", "rows"),
    limits={"share": 0.1},
)


def busy_host(run: Run) -> Iterator[Seen]:
    """Look at rows alone: the formulas of metrics mark metrics themselves."""
    share, rows = value_of(run, "cpu_others"), timed(run)
    if run.job.memory_scope == "host" and share is not None and share > BUSY_HOST.limits["share"] and rows:
        shares = {"share": units.percent(share), "limit": units.percent(BUSY_HOST.limits["share"])}
        yield seen("doubt.busy_host", (), [*rows], count=len(rows), **shares)


def few_repeats_of_rows(run: Run) -> Iterator[Seen]:
    rows, needed = timed(run), FEW_REPEATS.limits["repeats"]
    few = {index: row.num_repeats for index, row in rows.items() if row.num_repeats < needed}
    if not few.keys() <= _said_of_figures(run, rows, lambda _metric, row: row.num_repeats < needed):
        counts = {"count": len(few), "all": len(rows), "fewest": min(few.values()), "needed": units.count(needed)}
        yield seen("doubt.few_repeats_rows", (), [*few], **counts)


def unsteady_rows(run: Run) -> Iterator[Seen]:
    rows, limit = timed(run), UNSTEADY.limits["half_width"]
    wide = {index: far for index, row in rows.items() if (far := reach(row.interval, row.median)) > limit}
    unsettled = {index for index, row in rows.items() if not row.settled}
    found = sorted(unsettled | wide.keys())
    said = _said_of_figures(run, rows, lambda _metric, row: not row.settled)
    said |= wide.keys() & _said_of_figures(run, rows, lambda of, _row: reach(of.interval, of.value) > limit)
    if said.issuperset(found):
        return
    counts = {"all": len(rows), "unsettled": len(unsettled), "wide": len(wide)}
    if wide:
        shares = {"share": units.percent(max(wide.values())), "limit": units.percent(limit)}
        yield seen("doubt.unsteady_rows" if unsettled else "doubt.wide_rows", (), found, **counts, **shares)
    else:
        yield seen("doubt.unsettled_rows", (), found, **counts)


def timed(run: Run) -> dict[int, MeasuredRow]:
    """Return the rows that have a time, by their index."""
    return {index: row for index, row in enumerate(run.rows) if row.median is not None and row.calls}


def _said_of_figures(
    run: Run, rows: Mapping[int, MeasuredRow], breaks: Callable[[Metric, MeasuredRow], bool]
) -> set[int]:
    """Return the rows whose figure has the same doubt, so that it is said already."""
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
