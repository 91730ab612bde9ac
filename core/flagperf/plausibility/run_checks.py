"""Doubts about the figures of a run: those that contradict each other, speeds that cannot be, and what a probe read of
memory, power and cards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from flagperf import units
from flagperf.bundle.run_record import Run
from flagperf.kinds import KINDS
from flagperf.messages import Message
from flagperf.plausibility.row_checks import DECIMAL_UNIT, FEW_REPEATS, OVER_CAPACITY, UNSTEADY, timed
from flagperf.plausibility.rules import (
    Check,
    Rule,
    Seen,
    differ_by_unit,
    explaining_row,
    is_idle,
    reach,
    seen,
    value_of,
)
from flagperf.units import GIB

# --- figures that contradict each other: no page is written of such a run ---------------------------------------------

SLACK = 1e-9
"""Relative tolerance for floating-point rounding."""

ORDERED = (
    ("p_core", "p_train"),
    ("p_train", "p_whole"),
    ("p_core", "p_whole"),
    ("p_infer_core", "p_infer_whole"),
    ("p_val_core", "p_val_whole"),
)
"""The first of each two is at least the second: its time lies inside that of the other."""


NOT_FINITE = Rule(
    "not_finite",
    "prod of 2^30 normal values, which underflows, so that every implementation matches: operation/benchmarks/prod",
    effect="refused",
    metrics=("*",),
)


def not_finite(run: Run) -> Iterator[Seen]:
    for metric in run.metrics:
        if metric.value is not None and not math.isfinite(metric.value):
            yield seen("doubt.not_finite", (metric.name,), metric=metric.name, value=str(metric.value))


THROUGHPUT_ORDER = Rule(
    "throughput_order",
    "pages promise p3 > p2 > p1 and count the samples of each in another way (67,584 of 67,349): "
    "training/nvidia/distilbert-pytorch/README.md",
    of=("run", "page"),
    effect="refused",
    metrics=("p_*",),
)


def throughput_order(run: Run) -> Iterator[Seen]:
    for higher, lower in ORDERED:
        more, less = value_of(run, higher), value_of(run, lower)
        if more is not None and less is not None and more < less * (1 - SLACK):
            figures = {"more": f"{more:.6g}", "less": f"{less:.6g}"}
            yield seen("doubt.throughput_order", (higher, lower), higher=higher, lower=lower, **figures)


WINDOW_LONGER_THAN_RUN = Rule(
    "window_longer_than_run",
    "an e2e_time of 334.7 s that is the training time alone, 675,840 samples at 2019.1/s: "
    "training/nvidia/distilbert-pytorch/README.md",
    effect="refused",
    metrics=("e2e_time", "p_whole"),
)


def window_longer_than_run(run: Run) -> Iterator[Seen]:
    samples, speed, whole = (value_of(run, name) for name in ("samples_kept", "p_whole", "e2e_time"))
    if samples is None or speed is None or whole is None:
        return
    if speed <= 0:
        yield seen("doubt.speed_not_positive", ("p_whole",), metric="p_whole", value=f"{speed:.6g}")
    elif samples / speed > whole * (1 + SLACK):
        figures = {"samples": units.count(samples), "speed": f"{speed:.6g}"}
        times = {"seconds": f"{samples / speed:.6g}", "whole": f"{whole:.6g}"}
        yield seen("doubt.window_longer_than_run", **figures, **times)


OUT_OF_RANGE = Rule(
    "out_of_range",
    "80.52 % where others write 0.8052: training/kunlunxin/glm-pytorch/README.md",
    of=("run", "page"),
    effect="refused",
    metrics=("*",),
)


def out_of_range(run: Run) -> Iterator[Seen]:
    for quality in run.manifest.qualities:
        is_share = quality.format == "fraction"
        low = quality.minimum if quality.minimum is not None else (0.0 if is_share else -math.inf)
        high = quality.maximum if quality.maximum is not None else (1.0 if is_share else math.inf)
        value = value_of(run, quality.name)
        if value is not None and not low <= value <= high:
            figures = {"value": f"{value:.6g}", "low": f"{low:g}", "high": f"{high:g}"}
            yield seen("doubt.out_of_range", (quality.name,), metric=quality.name, **figures)
    used, total = value_of(run, "mem_used"), value_of(run, "mem_total")
    if used is not None and total is not None and not 0 < used <= total:
        names = ("mem_used", "mem_total")
        yield seen("doubt.used_over_total", names, used=units.count(used), total=units.count(total))


TOTAL_IS_NOT_CAPACITY = Rule(
    "total_is_not_capacity",
    "totals of 40, 40.0 and 39.6 GiB for one card: training/nvidia",
    of=("run", "page"),
    effect="refused",
    metrics=("mem_total",),
    limits={"difference": 0.01},
)


def total_is_not_capacity(run: Run) -> Iterator[Seen]:
    used, total = value_of(run, "mem_used"), value_of(run, "mem_total")
    capacity = run.job.device_model.memory_bytes
    if used is None or total is None or capacity is None or run.job.memory_scope != "device":
        return
    if abs(total - capacity) > capacity * TOTAL_IS_NOT_CAPACITY.limits["difference"]:
        yield seen("doubt.total_is_not_capacity", total=units.count(total), capacity=units.count(capacity))


DEVICES_INCOMPLETE = Rule(
    "devices_incomplete",
    "16 cards of 2 hosts on a page with 1 host of 8: base/benchmarks/computation-FP32/iluvatar/BI150/README.md",
    effect="refused",
    metrics=("mem_used",),
)


def devices_incomplete(run: Run) -> Iterator[Seen]:
    counts = [len(node.devices) for node in run.job.nodes]
    if len(set(counts)) != 1 or counts[0] == 0:
        yield seen("doubt.uneven_nodes", counts=counts)
    used = run.metric("mem_used")
    num_sampled = len(used.inputs.get("per_device", ())) if used else 0
    if num_sampled and num_sampled != run.job.world_size:
        yield seen("doubt.devices_incomplete", sampled=num_sampled, devices=run.job.world_size)


UTILISATION_OVER_100 = Rule(
    "utilisation_over_100",
    "652.78 % of the FP32 peak: operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md",
    of=("run", "page"),
    effect="refused",
    metrics=("mfu*",),
)


def utilisation_over_100(run: Run) -> Iterator[Seen]:
    for metric in run.metrics:
        if metric.name.startswith("mfu") and metric.value is not None and not 0 <= metric.value <= 1:
            share = units.percent(metric.value)
            yield seen("doubt.utilisation_over_100", (metric.name,), metric=metric.name, share=share)


MFU_DOES_NOT_FOLLOW = Rule(
    "mfu_does_not_follow",
    "0.036 beside 84.9 samples/s on 16 cards, which are 0.0350: training/nvidia/glm-pytorch/README.md",
    of=("run", "page"),
    effect="refused",
    metrics=("mfu",),
    limits={"points": 0.05},
)


def mfu_does_not_follow(run: Run) -> Iterator[Seen]:
    mfu, speed, peak = run.metric("mfu"), value_of(run, "tflops_per_device"), run.job.peak
    if mfu is None or mfu.value is None or speed is None or peak is None or peak.value <= 0:
        return
    share = speed * 1e12 / peak.value
    if abs(mfu.value - share) * 100 > MFU_DOES_NOT_FOLLOW.limits["points"]:
        figures = {"speed": f"{speed:.6g}", "peak": units.teraflops(peak.value)}
        shares = {"mfu": f"{mfu.value:.2%}", "share": f"{share:.2%}"}
        yield seen("doubt.mfu_does_not_follow", **figures, **shares)


# --- speeds ---------------------------------------------------------------------------------------------------------

NOT_COMPUTE = ("memory_bandwidth", "link_bandwidth", "tdp")
"""Rows of peaks that are not FLOP/s."""


SPEEDS = ("p_*", "token/p/s", "step_time_*", "tflops_per_device")

ABOVE_PEAK = Rule(
    "above_peak",
    "mm in FP32 at 127.29 of 19.5 TFLOPS: operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md",
    of=("run", "page"),
    metrics=SPEEDS,
)

TF32_CALLED_FP32 = Rule(
    "tf32_called_fp32",
    "287.9 samples/s in fp32, which are 41.7 of 19.5 TFLOP/s: training/nvidia/distilbert-pytorch/README.md",
    of=("run", "page"),
    metrics=SPEEDS,
)


def above_peak(run: Run, rule: Rule) -> Iterator[Seen]:
    """Look for a rate that MFU was withheld for: the throughputs that it comes from were not. Each such rate breaks one
    of the two rules."""
    mfu, peak = run.metric("mfu"), run.job.peak
    if mfu is None or mfu.message is None or mfu.message.code != "flops.above_peak":
        return
    tokens, flops = mfu.inputs.get("tokens_per_second_per_device"), mfu.inputs.get("flops_per_token")
    if not tokens or not flops:
        return
    row, rate = run.job.precision.peak_row, tokens * flops
    peaks = {each.row: each.value for each in run.job.peaks if each.row not in NOT_COMPUTE}
    figures = {"rate": units.teraflops(rate), "peak": units.teraflops(peak.value) if peak else "", "precision": row}
    is_tf32 = row == "fp32" and explaining_row(rate, row, peaks) == "tf32"
    if is_tf32 and rule is TF32_CALLED_FP32:
        yield seen("doubt.tf32_called_fp32", **figures, other=units.teraflops(peaks["tf32"]))
    elif not is_tf32 and rule is ABOVE_PEAK:
        yield seen("doubt.above_peak", **figures)


def few_steps(run: Run) -> Iterator[Seen]:
    kept = value_of(run, "steps_kept")
    if kept is not None and 0 < kept < FEW_REPEATS.limits["steps"] and KINDS[run.manifest.kind].has_steps:
        needed = units.count(FEW_REPEATS.limits["steps"])
        yield seen("doubt.few_steps", steps=units.count(kept), needed=needed)


def unsteady(run: Run) -> Iterator[Seen]:
    wide = {
        metric.name: half_width
        for metric in run.metrics
        if UNSTEADY.may_mark(metric.name, run)
        and (half_width := reach(metric.interval, metric.value)) > UNSTEADY.limits["half_width"]
    }
    if wide:
        shares = {"share": units.percent(max(wide.values())), "limit": units.percent(UNSTEADY.limits["half_width"])}
        yield seen("doubt.unsteady", [*wide], names=list(wide), **shares)


THROTTLED = Rule(
    "throttled",
    "results that change with an unset clock, says the note: base/benchmarks/computation-FP16/iluvatar/BI150/README.md",
    metrics=(*SPEEDS, "mfu*", "figures", "rows"),
    limits={"share": 0.05},
)


def throttled(run: Run) -> Iterator[Seen]:
    metric = run.metric("throttled_share")
    if metric is None or metric.value is None or metric.value <= THROTTLED.limits["share"]:
        return
    reasons = [f"{reason} ({count})" for reason, count in metric.inputs.get("reasons", {}).items()]
    figures = {"share": units.percent(metric.value), "device": str(metric.inputs.get("device_id", ""))}
    names = [each.name for each in run.metrics if each.value is not None and THROTTLED.may_mark(each.name, run)]
    yield seen("doubt.throttled", names, [*timed(run)], reasons=reasons, **figures)


DIVERGED = Rule(
    "diverged",
    "speeds whose loss nobody can see, aligned: True without a curve: training/metax/llama2_70B-megatron/README.md",
    metrics=(*SPEEDS, "mfu*"),
)


def diverged(run: Run) -> Iterator[Seen]:
    for name in ("loss_first", "loss"):
        metric = run.metric(name)
        said = metric.message if metric is not None else None
        if said is None:
            continue
        is_outside = said.code == "quality.out_of_range" and str(said.params.get("value")) in ("nan", "inf", "-inf")
        if is_outside or said.code == "quality.diverged":
            yield Seen(said)
            return


# --- what a probe read ----------------------------------------------------------------------------------------------

NAMED = 4
"""Cards that a doubt names at most."""


def decimal_total(run: Run) -> Iterator[Seen]:
    """Look for a probe that counts GiB where the description of the card counts GB, or the reverse."""
    total, capacity = value_of(run, "mem_total"), run.job.device_model.memory_bytes
    if total is None or not capacity or run.job.memory_scope != "device":
        return
    if differ_by_unit(total, capacity, DECIMAL_UNIT.limits["difference"]):
        names = ("mem_total", "mem_used")
        yield seen("doubt.decimal_total", names, total=units.count(total), capacity=units.count(capacity))


def marked_over_capacity(run: Run) -> Iterator[Seen]:
    """Say in numbers what the formula of memory marked."""
    used, capacity = run.metric("mem_used"), run.job.device_model.memory_bytes
    if used is not None and used.value is not None and "over_capacity" in used.marks and capacity:
        figures = {"used": f"{used.value / GIB:.2f}", "total": f"{capacity / GIB:.2f}"}
        yield seen("doubt.over_capacity", (used.name,), what=used.name, **figures)


MEMORY_OF_OTHERS = Rule(
    "memory_of_others",
    "77.965 % of 40 GiB for a tensor of 4 GiB, because 8 ranks took one card: "
    "base/benchmarks/interconnect-P2P_interserver/nvidia/A100/README.md",
    metrics=("mem_used",),
    limits={"gib": 4.0},
)


def memory_of_others(run: Run) -> Iterator[Seen]:
    remainder, allocator = run.metric("mem_remainder"), run.metric("mem_allocator")
    if remainder is None or allocator is None or remainder.value is None:
        return
    reserved = allocator.inputs.get("per_device", {})
    for card, others in remainder.inputs.get("per_device", {}).items():
        own = reserved.get(card)
        if own is not None and others > max(own, MEMORY_OF_OTHERS.limits["gib"] * GIB):
            yield seen("doubt.memory_of_others", device=card, others=units.gib(others), own=units.gib(own))
            return


TELEMETRY_GAP = Rule(
    "telemetry_gap",
    "system power of two levels, sampled every 120 s: base/benchmarks/computation-BF16/nvidia/A100/README.md",
    metrics=("mem_*",),
)

IMPLAUSIBLE_UTILISATION = Rule(
    "implausible_utilisation",
    "652.78 %: operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md",
    metrics=("mem_*",),
)

ENERGY_MISMATCH = Rule(
    "energy_mismatch",
    "a mean of 70.2 W below a maximum of 72.0 W with a deviation of 0.0 W: operation/benchmarks/mm/metax",
    metrics=("energy*",),
)


def marked_by_formula(run: Run, rule: Rule) -> Iterator[Seen]:
    marked = [metric for metric in run.metrics if rule.name in metric.marks]
    if marked:
        names, gap = [metric.name for metric in marked], marked[0].inputs.get("largest_gap_seconds")
        yield seen(f"doubt.{rule.name}", names, metrics=names, seconds="" if gap is None else f"{gap:.3g}")


SPARSE_TELEMETRY = Rule(
    "sparse_telemetry",
    "system power 3354, 4524 and 1170 W: two samples of 120 s: base/benchmarks/computation-BF16/nvidia/A100/README.md",
    metrics=("power_*", "utilisation_mean", "clock_mean", "temperature_max", "throttled_share"),
    limits={"samples": 20, "periods": 3},
)


def sparse_telemetry(run: Run) -> Iterator[Seen]:
    memory = run.metric("mem_used")
    period = max(run.job.sample_seconds, (memory.inputs.get("interval_seconds") or 0) if memory else 0)
    longest = period * SPARSE_TELEMETRY.limits["periods"]
    found: dict[tuple[int, float], list[str]] = {}
    for metric in run.metrics:
        samples, gap = metric.inputs.get("num_samples"), metric.inputs.get("largest_gap_seconds")
        is_concerned = metric.value is not None and SPARSE_TELEMETRY.may_mark(metric.name, run)
        if samples is None or gap is None or not is_concerned:
            continue
        if samples < SPARSE_TELEMETRY.limits["samples"] or gap > longest:
            found.setdefault((samples, gap), []).append(metric.name)
    for (samples, gap), names in found.items():
        allowed = {"needed": units.count(SPARSE_TELEMETRY.limits["samples"]), "longest": f"{longest:g}"}
        yield seen("doubt.sparse_telemetry", names, names=names, samples=samples, gap=f"{gap:.3g}", **allowed)


MEAN_ABOVE_MAX = Rule(
    "mean_above_max",
    "system power 4368.6 W on average, 4368.0 W at most: base/benchmarks/computation-TF32/nvidia/A100/README.md",
    of=("run", "page"),
    metrics=("power_mean", "power_max"),
)


def mean_above_max(run: Run) -> Iterator[Seen]:
    metrics = run.metric("power_mean"), run.metric("power_max")
    means, highest = (
        {} if each is None or each.value is None else each.inputs.get("per_device", {}) for each in metrics
    )
    for card, mean in means.items():
        if card in highest and mean > highest[card] * (1 + SLACK):
            figures = {"mean": units.one_decimal(mean), "high": units.one_decimal(highest[card])}
            yield seen("doubt.mean_above_max", what=card, **figures)
            return


OVER_TDP = Rule(
    "over_tdp",
    "492.8 W of a card of 350 W: base/benchmarks/computation-FP16/iluvatar/BI150/README.md",
    of=("run", "page"),
    metrics=("power_max", "power_mean"),
    limits={"share": 1.05},
)


def over_tdp(run: Run) -> Iterator[Seen]:
    """Look at figures of cards, not at those of a board of several cards."""
    tdp = _tdp(run)
    for name in ("power_max", "power_mean"):
        metric = run.metric(name)
        if not tdp or metric is None or metric.value is None or "whole_board" in metric.marks:
            continue
        if metric.value > OVER_TDP.limits["share"] * tdp:
            figures = {"watts": units.one_decimal(metric.value), "tdp": units.setting(tdp)}
            yield seen("doubt.over_tdp", (name,), what=name, **figures)


IDLE_POWER = Rule(
    "idle_power",
    "79.3 % of the INT8 peak at 57 of 450 W: base/toolkits/computation-INT8/metax/C550/README.md",
    of=("run", "page"),
    metrics=("power_*", "energy*"),
    limits={"share": 0.5, "power": 0.3},
)


def idle_power(run: Run) -> Iterator[Seen]:
    tdp, watts = _tdp(run), value_of(run, "power_max")
    shares = (metric.inputs.get("share") for metric in run.metrics)
    share = max([value_of(run, "mfu") or 0.0, *(each for each in shares if each is not None)])
    if tdp and watts is not None and is_idle(share, watts, tdp, IDLE_POWER.limits):
        figures = {"share": units.percent(share), "watts": units.one_decimal(watts), "tdp": units.setting(tdp)}
        yield seen("doubt.idle_power", **figures)


DEVICE_SET_CHANGED = Rule(
    "device_set_changed",
    "8 cards in the table, 2 in the list of servers: base/benchmarks/main_memory-bandwidth/metax/C550/README.md",
    metrics=("mem_*", "power_*", "energy", "utilisation_mean", "clock_mean", "temperature_max", "throttled_share"),
)


def device_set_changed(run: Run) -> Iterator[Seen]:
    """Compare the cards that were planned with those that were read."""
    job = run.job
    planned = {f"{node.index}/{device.id}" for node in job.nodes for device in node.devices}
    found: dict[frozenset[str], list[str]] = {}
    for metric in run.metrics:
        read = frozenset(metric.inputs.get("per_device", ()))
        is_of_cards = bool(read) and metric.value is not None and "whole_board" not in metric.marks
        if is_of_cards and read != planned and DEVICE_SET_CHANGED.may_mark(metric.name, run):
            found.setdefault(read, []).append(metric.name)
    for read, names in found.items():
        cards = {"missing": sorted(planned - read)[:NAMED], "added": sorted(read - planned)[:NAMED]}
        yield seen("doubt.device_set_changed", names, names=names, **cards)


def _tdp(run: Run) -> float | None:
    return next((peak.value for peak in run.job.peaks if peak.row == "tdp" and peak.value > 0), None)


# --- values that a formula did not give -----------------------------------------------------------------------------

WITHHELD = (
    Rule(
        "wrong_output",
        "in-place all-reduce of ones, infinite from call 43 on: base/benchmarks/interconnect-MPI_intraserver",
        effect="withheld",
        metrics=("figures",),
        messages=("figure.problem",),
    ),
    Rule(
        "quality_out_of_range",
        "an accuracy over 872 rows of which 880 were counted, 0.92 points too many: training/benchmarks/distilbert",
        effect="withheld",
        metrics=("*",),
        messages=("quality.out_of_range",),
    ),
    Rule(
        "memory_not_possible",
        "65.25 of 64 GiB: base/benchmarks/main_memory-capacity/metax/C550/README.md",
        effect="withheld",
        metrics=("mem_*",),
        messages=(
            "memory.over_total",
            "memory.pool_overdrawn",
            "memory.peak_not_positive",
            "memory.bad_total",
            "memory.below_allocator",
        ),
    ),
    Rule(
        "energy_too_sparse",
        "the same page",
        effect="withheld",
        metrics=("energy*",),
        messages=("power.gap", "power.few_samples"),
    ),
    Rule(
        "utilisation_not_possible",
        "652.78 and -22.61 %: operation/benchmarks/mm and bitwise_and",
        effect="withheld",
        metrics=("utilisation_mean",),
        messages=("power.bad_utilisation",),
    ),
    Rule(
        "power_not_possible",
        "14.59.0W in the cell of a power",
        effect="withheld",
        metrics=("power_*", "energy*"),
        messages=("power.negative", "power.counter_fell"),
    ),
)
"""Rules that formulas of metrics check: the value is missing, and one of these messages says why."""


def withheld(run: Run, rule: Rule) -> Iterator[Seen]:
    """Yield, once for each cause, the values that a formula withheld because they cannot be true."""
    names: dict[Message, list[str]] = {}
    for metric in run.metrics:
        said = metric.message if metric.reason == "invalid_telemetry" else None
        if said is not None and said.code in rule.messages:
            names.setdefault(said, []).append(metric.name)
    yield from (Seen(said, tuple(found)) for said, found in names.items())


CHECKS: tuple[tuple[Rule, Check], ...] = (
    (NOT_FINITE, not_finite),
    (THROUGHPUT_ORDER, throughput_order),
    (WINDOW_LONGER_THAN_RUN, window_longer_than_run),
    (OUT_OF_RANGE, out_of_range),
    (TOTAL_IS_NOT_CAPACITY, total_is_not_capacity),
    (DEVICES_INCOMPLETE, devices_incomplete),
    (UTILISATION_OVER_100, utilisation_over_100),
    (MFU_DOES_NOT_FOLLOW, mfu_does_not_follow),
    (ABOVE_PEAK, partial(above_peak, rule=ABOVE_PEAK)),
    (TF32_CALLED_FP32, partial(above_peak, rule=TF32_CALLED_FP32)),
    (FEW_REPEATS, few_steps),
    (UNSTEADY, unsteady),
    (THROTTLED, throttled),
    (DIVERGED, diverged),
    (DECIMAL_UNIT, decimal_total),
    (OVER_CAPACITY, marked_over_capacity),
    (MEMORY_OF_OTHERS, memory_of_others),
    (TELEMETRY_GAP, partial(marked_by_formula, rule=TELEMETRY_GAP)),
    (IMPLAUSIBLE_UTILISATION, partial(marked_by_formula, rule=IMPLAUSIBLE_UTILISATION)),
    (ENERGY_MISMATCH, partial(marked_by_formula, rule=ENERGY_MISMATCH)),
    (SPARSE_TELEMETRY, sparse_telemetry),
    (MEAN_ABOVE_MAX, mean_above_max),
    (OVER_TDP, over_tdp),
    (IDLE_POWER, idle_power),
    (DEVICE_SET_CHANGED, device_set_changed),
)

WITHHELD_CHECKS: tuple[tuple[Rule, Check], ...] = tuple((rule, partial(withheld, rule=rule)) for rule in WITHHELD)
