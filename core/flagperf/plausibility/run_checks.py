"""Doubts about the figures of a run: those that contradict each other, speeds that cannot be, and what a probe read of
memory, power and cards."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flagperf import units
from flagperf.bundle.run_record import RecordedRun, Run
from flagperf.kinds import KINDS
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric
from flagperf.plausibility.row_checks import DECIMAL_UNIT, FEW_REPEATS, OVER_CAPACITY, UNSTEADY, timed
from flagperf.plausibility.rules import Check, Rule, Seen, differ_by_unit, explaining_row, is_idle, reach, value_of
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
    of=("run",),
    effect="refused",
    metrics=("*",),
    published=(
        "prod of 2^30 normal values, which underflows, so that every implementation matches: operation/benchmarks/prod"
    ),
)


def not_finite(recorded: RecordedRun) -> Iterator[Seen]:
    for metric in recorded.run.metrics:
        if metric.value is not None and not math.isfinite(metric.value):
            yield Seen(message("doubt.not_finite", metric=metric.name, value=str(metric.value)), (metric.name,))


THROUGHPUT_ORDER = Rule(
    "throughput_order",
    of=("run", "page"),
    effect="refused",
    metrics=("p_*",),
    published=(
        "pages promise p3 > p2 > p1 and count the samples of each in another way (67,584 of 67,349): "
        "training/nvidia/distilbert-pytorch/README.md"
    ),
)


def throughput_order(recorded: RecordedRun) -> Iterator[Seen]:
    for higher, lower in ORDERED:
        more, less = value_of(recorded.run, higher), value_of(recorded.run, lower)
        if more is not None and less is not None and more < less * (1 - SLACK):
            figures = {"more": f"{more:.6g}", "less": f"{less:.6g}"}
            yield Seen(message("doubt.throughput_order", higher=higher, lower=lower, **figures), (higher, lower))


WINDOW_LONGER_THAN_RUN = Rule(
    "window_longer_than_run",
    of=("run",),
    effect="refused",
    metrics=("e2e_time", "p_whole"),
    published=(
        "an e2e_time of 334.7 s that is the training time alone, 675,840 samples at 2019.1/s: "
        "training/nvidia/distilbert-pytorch/README.md"
    ),
)


def window_longer_than_run(recorded: RecordedRun) -> Iterator[Seen]:
    samples, speed, whole = (value_of(recorded.run, name) for name in ("samples_kept", "p_whole", "e2e_time"))
    if samples is None or speed is None or whole is None:
        return
    if speed <= 0:
        yield Seen(message("doubt.speed_not_positive", metric="p_whole", value=f"{speed:.6g}"), ("p_whole",))
    elif samples / speed > whole * (1 + SLACK):
        figures = {"samples": units.count(samples), "speed": f"{speed:.6g}"}
        times = {"seconds": f"{samples / speed:.6g}", "whole": f"{whole:.6g}"}
        yield Seen(message("doubt.window_longer_than_run", **figures, **times))


OUT_OF_RANGE = Rule(
    "out_of_range",
    of=("run", "page"),
    effect="refused",
    metrics=("*",),
    published="80.52 % where others write 0.8052: training/kunlunxin/glm-pytorch/README.md",
)


def out_of_range(recorded: RecordedRun) -> Iterator[Seen]:
    for quality in recorded.run.manifest.qualities:
        is_share = quality.format == "fraction"
        low = quality.minimum if quality.minimum is not None else (0.0 if is_share else -math.inf)
        high = quality.maximum if quality.maximum is not None else (1.0 if is_share else math.inf)
        value = value_of(recorded.run, quality.name)
        if value is not None and not low <= value <= high:
            limits = {"low": f"{low:g}", "high": f"{high:g}"}
            yield Seen(
                message("doubt.out_of_range", metric=quality.name, value=f"{value:.6g}", **limits), (quality.name,)
            )
    used, total = value_of(recorded.run, "mem_used"), value_of(recorded.run, "mem_total")
    if used is not None and total is not None and not 0 < used <= total:
        figures = {"used": units.count(used), "total": units.count(total)}
        yield Seen(message("doubt.used_over_total", **figures), ("mem_used", "mem_total"))


TOTAL_IS_NOT_CAPACITY = Rule(
    "total_is_not_capacity",
    of=("run", "page"),
    effect="refused",
    metrics=("mem_total",),
    limits={"difference": 0.01},
    published="totals of 40, 40.0 and 39.6 GiB for one card: training/nvidia",
)


def total_is_not_capacity(recorded: RecordedRun) -> Iterator[Seen]:
    job = recorded.run.job
    used, total = value_of(recorded.run, "mem_used"), value_of(recorded.run, "mem_total")
    capacity = job.device_model.memory_bytes
    if used is None or total is None or capacity is None or job.memory_scope != "device":
        return
    if abs(total - capacity) > capacity * TOTAL_IS_NOT_CAPACITY.limits["difference"]:
        figures = {"total": units.count(total), "capacity": units.count(capacity)}
        yield Seen(message("doubt.total_is_not_capacity", **figures))


DEVICES_INCOMPLETE = Rule(
    "devices_incomplete",
    of=("run",),
    effect="refused",
    metrics=("mem_used",),
    published=(
        "16 cards of 2 hosts on a page with 1 host of 8: base/benchmarks/computation-FP32/iluvatar/BI150/README.md"
    ),
)


def devices_incomplete(recorded: RecordedRun) -> Iterator[Seen]:
    job = recorded.run.job
    counts = [len(node.devices) for node in job.nodes]
    if len(set(counts)) != 1 or counts[0] == 0:
        yield Seen(message("doubt.uneven_nodes", counts=counts))
    used = recorded.run.metric("mem_used")
    num_sampled = len(used.inputs.get("per_device", ())) if used else 0
    if num_sampled and num_sampled != job.world_size:
        yield Seen(message("doubt.devices_incomplete", sampled=num_sampled, devices=job.world_size))


UTILISATION_OVER_100 = Rule(
    "utilisation_over_100",
    of=("run", "page"),
    effect="refused",
    metrics=("mfu*",),
    published="652.78 % of the FP32 peak: operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md",
)


def utilisation_over_100(recorded: RecordedRun) -> Iterator[Seen]:
    for metric in recorded.run.metrics:
        if metric.name.startswith("mfu") and metric.value is not None and not 0 <= metric.value <= 1:
            share = units.percent(metric.value)
            yield Seen(message("doubt.utilisation_over_100", metric=metric.name, share=share), (metric.name,))


MFU_DOES_NOT_FOLLOW = Rule(
    "mfu_does_not_follow",
    of=("run", "page"),
    effect="refused",
    metrics=("mfu",),
    limits={"points": 0.05},
    published="0.036 beside 84.9 samples/s on 16 cards, which are 0.0350: training/nvidia/glm-pytorch/README.md",
)


def mfu_does_not_follow(recorded: RecordedRun) -> Iterator[Seen]:
    mfu, speed, peak = recorded.run.metric("mfu"), value_of(recorded.run, "tflops_per_device"), recorded.run.job.peak
    if mfu is None or mfu.value is None or speed is None or peak is None or peak.value <= 0:
        return
    share = speed * 1e12 / peak.value
    if abs(mfu.value - share) * 100 > MFU_DOES_NOT_FOLLOW.limits["points"]:
        figures = {"speed": f"{speed:.6g}", "peak": units.teraflops(peak.value)}
        shares = {"mfu": f"{mfu.value:.2%}", "share": f"{share:.2%}"}
        yield Seen(message("doubt.mfu_does_not_follow", **figures, **shares))


# --- speeds ---------------------------------------------------------------------------------------------------------

NOT_COMPUTE = ("memory_bandwidth", "link_bandwidth", "tdp")
"""Rows of peaks that are not FLOP/s."""


ABOVE_PEAK = Rule(
    "above_peak",
    of=("run", "page"),
    effect="marked",
    metrics=("p_*", "token/p/s", "step_time_*", "tflops_per_device"),
    published="mm in FP32 at 127.29 of 19.5 TFLOPS: operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md",
)


def above_peak(recorded: RecordedRun) -> Iterator[Seen]:
    found = _too_fast(recorded.run)
    if found is not None and not _is_tf32(recorded.run, found):
        yield Seen(message("doubt.above_peak", **_figures(recorded.run, found)))


TF32_CALLED_FP32 = Rule(
    "tf32_called_fp32",
    of=("run", "page"),
    effect="marked",
    metrics=("p_*", "token/p/s", "step_time_*", "tflops_per_device"),
    published="287.9 samples/s in fp32, which are 41.7 of 19.5 TFLOP/s: training/nvidia/distilbert-pytorch/README.md",
)


def tf32_called_fp32(recorded: RecordedRun) -> Iterator[Seen]:
    found = _too_fast(recorded.run)
    if found is not None and _is_tf32(recorded.run, found):
        other = units.teraflops(_peaks(recorded.run)["tf32"])
        yield Seen(message("doubt.tf32_called_fp32", **_figures(recorded.run, found), other=other))


def _too_fast(run: Run) -> float | None:
    """FLOP/s of a device, where they were above the peak: MFU itself was withheld by its formula, the throughputs that
    it comes from were not."""
    mfu = run.metric("mfu")
    if mfu is None or mfu.message is None or mfu.message.code != "flops.above_peak":
        return None
    tokens, flops = mfu.inputs.get("tokens_per_second_per_device"), mfu.inputs.get("flops_per_token")
    return tokens * flops if tokens and flops else None


def _is_tf32(run: Run, rate: float) -> bool:
    row = run.job.precision.peak_row
    return row == "fp32" and explaining_row(rate, row, _peaks(run)) == "tf32"


def _peaks(run: Run) -> dict[str, float]:
    return {peak.row: peak.value for peak in run.job.peaks if peak.row not in NOT_COMPUTE}


def _figures(run: Run, rate: float) -> dict[str, str]:
    peak = run.job.peak
    return {
        "rate": units.teraflops(rate),
        "peak": units.teraflops(peak.value) if peak else "",
        "precision": run.job.precision.peak_row,
    }


def few_steps(recorded: RecordedRun) -> Iterator[Seen]:
    kept = value_of(recorded.run, "steps_kept")
    if kept is not None and 0 < kept < FEW_REPEATS.limits["steps"] and KINDS[recorded.run.manifest.kind].has_steps:
        needed = units.count(FEW_REPEATS.limits["steps"])
        yield Seen(message("doubt.few_steps", steps=units.count(kept), needed=needed))


def unsteady(recorded: RecordedRun) -> Iterator[Seen]:
    wide = {
        metric.name: half_width
        for metric in recorded.run.metrics
        if UNSTEADY.may_mark(metric.name, recorded.run)
        and (half_width := reach(metric.interval, metric.value)) > UNSTEADY.limits["half_width"]
    }
    if wide:
        shares = {"share": units.percent(max(wide.values())), "limit": units.percent(UNSTEADY.limits["half_width"])}
        yield Seen(message("doubt.unsteady", names=list(wide), **shares), tuple(wide))


THROTTLED = Rule(
    "throttled",
    of=("run",),
    effect="marked",
    metrics=("p_*", "token/p/s", "step_time_*", "tflops_per_device", "mfu*", "figures", "rows"),
    limits={"share": 0.05},
    published=(
        "results that change with an unset clock, says the note: "
        "base/benchmarks/computation-FP16/iluvatar/BI150/README.md"
    ),
)


def throttled(recorded: RecordedRun) -> Iterator[Seen]:
    metric = recorded.run.metric("throttled_share")
    if metric is None or metric.value is None or metric.value <= THROTTLED.limits["share"]:
        return
    reasons = [f"{reason} ({count})" for reason, count in metric.inputs.get("reasons", {}).items()]
    device = str(metric.inputs.get("device_id", ""))
    said = message("doubt.throttled", share=units.percent(metric.value), device=device, reasons=reasons)
    metrics = [each for each in recorded.run.metrics if each.value is not None]
    names = tuple(each.name for each in metrics if THROTTLED.may_mark(each.name, recorded.run))
    yield Seen(said, names, tuple(timed(recorded.run)))


DIVERGED = Rule(
    "diverged",
    of=("run",),
    effect="marked",
    metrics=("p_*", "token/p/s", "step_time_*", "tflops_per_device", "mfu*"),
    published=(
        "speeds whose loss nobody can see, aligned: True without a curve: training/metax/llama2_70B-megatron/README.md"
    ),
)


def diverged(recorded: RecordedRun) -> Iterator[Seen]:
    for name in ("loss_first", "loss"):
        metric = recorded.run.metric(name)
        if metric is not None and metric.message is not None and _is_no_number(metric.message):
            yield Seen(metric.message)
            return


def _is_no_number(said: Message) -> bool:
    is_outside = said.code == "quality.out_of_range" and str(said.params.get("value")) in ("nan", "inf", "-inf")
    return said.code == "quality.diverged" or is_outside


# --- what a probe read ----------------------------------------------------------------------------------------------

NAMED = 4
"""Cards that a doubt names at most."""


def decimal_total(recorded: RecordedRun) -> Iterator[Seen]:
    """The probe and the description of the card, one in GB and one in GiB."""
    total, capacity = value_of(recorded.run, "mem_total"), recorded.run.job.device_model.memory_bytes
    if total is None or not capacity or recorded.run.job.memory_scope != "device":
        return
    if differ_by_unit(total, capacity, DECIMAL_UNIT.limits["difference"]):
        figures = {"total": units.count(total), "capacity": units.count(capacity)}
        yield Seen(message("doubt.decimal_total", **figures), ("mem_total", "mem_used"))


def marked_over_capacity(recorded: RecordedRun) -> Iterator[Seen]:
    """What the formula of memory marked, in numbers."""
    used, capacity = recorded.run.metric("mem_used"), recorded.run.job.device_model.memory_bytes
    if used is not None and used.value is not None and "over_capacity" in used.marks and capacity:
        figures = {"used": f"{used.value / GIB:.2f}", "total": f"{capacity / GIB:.2f}"}
        yield Seen(message("doubt.over_capacity", what=used.name, **figures), (used.name,))


MEMORY_OF_OTHERS = Rule(
    "memory_of_others",
    of=("run",),
    effect="marked",
    metrics=("mem_used",),
    limits={"gib": 4.0},
    published=(
        "77.965 % of 40 GiB for a tensor of 4 GiB, because 8 ranks took one card: "
        "base/benchmarks/interconnect-P2P_interserver/nvidia/A100/README.md"
    ),
)


def memory_of_others(recorded: RecordedRun) -> Iterator[Seen]:
    remainder, allocator = recorded.run.metric("mem_remainder"), recorded.run.metric("mem_allocator")
    if remainder is None or allocator is None or remainder.value is None:
        return
    reserved = allocator.inputs.get("per_device", {})
    for card, others in remainder.inputs.get("per_device", {}).items():
        own = reserved.get(card)
        if own is not None and others > max(own, MEMORY_OF_OTHERS.limits["gib"] * GIB):
            figures = {"others": units.gib(others), "own": units.gib(own)}
            yield Seen(message("doubt.memory_of_others", device=card, **figures))
            return


def marked_by_formula(recorded: RecordedRun, name: str) -> Iterator[Seen]:
    names = tuple(metric.name for metric in recorded.run.metrics if name in metric.marks)
    if names:
        used = recorded.run.metric(names[0])
        gap = used.inputs.get("largest_gap_seconds") if used is not None else None
        seconds = "" if gap is None else f"{gap:.3g}"
        yield Seen(message(f"doubt.{name}", metrics=list(names), seconds=seconds), names)


TELEMETRY_GAP = Rule(
    "telemetry_gap",
    of=("run",),
    effect="marked",
    metrics=("mem_*",),
    published=(
        "system power of two levels, sampled every 120 s: base/benchmarks/computation-BF16/nvidia/A100/README.md"
    ),
)


def telemetry_gap(recorded: RecordedRun) -> Iterator[Seen]:
    yield from marked_by_formula(recorded, "telemetry_gap")


IMPLAUSIBLE_UTILISATION = Rule(
    "implausible_utilisation",
    of=("run",),
    effect="marked",
    metrics=("mem_*",),
    published="652.78 %: operation/benchmarks/mm/nvidia/A100_40_SXM/FP32_README.md",
)


def implausible_utilisation(recorded: RecordedRun) -> Iterator[Seen]:
    yield from marked_by_formula(recorded, "implausible_utilisation")


ENERGY_MISMATCH = Rule(
    "energy_mismatch",
    of=("run",),
    effect="marked",
    metrics=("energy*",),
    published="a mean of 70.2 W below a maximum of 72.0 W with a deviation of 0.0 W: operation/benchmarks/mm/metax",
)


def energy_mismatch(recorded: RecordedRun) -> Iterator[Seen]:
    yield from marked_by_formula(recorded, "energy_mismatch")


SPARSE_TELEMETRY = Rule(
    "sparse_telemetry",
    of=("run",),
    effect="marked",
    metrics=("power_*", "utilisation_mean", "clock_mean", "temperature_max", "throttled_share"),
    limits={"samples": 20, "periods": 3},
    published=(
        "system power 3354, 4524 and 1170 W: two samples of 120 s: "
        "base/benchmarks/computation-BF16/nvidia/A100/README.md"
    ),
)


def sparse_telemetry(recorded: RecordedRun) -> Iterator[Seen]:
    memory = recorded.run.metric("mem_used")
    period = max(recorded.run.job.sample_seconds, (memory.inputs.get("interval_seconds") or 0) if memory else 0)
    longest = period * SPARSE_TELEMETRY.limits["periods"]
    found: dict[tuple[int, float], list[str]] = {}
    for metric in recorded.run.metrics:
        samples, gap = metric.inputs.get("num_samples"), metric.inputs.get("largest_gap_seconds")
        is_concerned = metric.value is not None and SPARSE_TELEMETRY.may_mark(metric.name, recorded.run)
        if samples is None or gap is None or not is_concerned:
            continue
        if samples < SPARSE_TELEMETRY.limits["samples"] or gap > longest:
            found.setdefault((samples, gap), []).append(metric.name)
    for (samples, gap), names in found.items():
        allowed = {"needed": units.count(SPARSE_TELEMETRY.limits["samples"]), "longest": f"{longest:g}"}
        figures = {"samples": samples, "gap": f"{gap:.3g}"}
        yield Seen(message("doubt.sparse_telemetry", names=names, **figures, **allowed), tuple(names))


MEAN_ABOVE_MAX = Rule(
    "mean_above_max",
    of=("run", "page"),
    effect="marked",
    metrics=("power_mean", "power_max"),
    published=(
        "system power 4368.6 W on average, 4368.0 W at most: base/benchmarks/computation-TF32/nvidia/A100/README.md"
    ),
)


def mean_above_max(recorded: RecordedRun) -> Iterator[Seen]:
    means, highest = (_per_device(recorded.run, name) for name in ("power_mean", "power_max"))
    for card, mean in means.items():
        if card in highest and mean > highest[card] * (1 + 1e-9):
            figures = {"mean": units.one_decimal(mean), "high": units.one_decimal(highest[card])}
            yield Seen(message("doubt.mean_above_max", what=card, **figures))
            return


OVER_TDP = Rule(
    "over_tdp",
    of=("run", "page"),
    effect="marked",
    metrics=("power_max", "power_mean"),
    limits={"share": 1.05},
    published="492.8 W of a card of 350 W: base/benchmarks/computation-FP16/iluvatar/BI150/README.md",
)


def over_tdp(recorded: RecordedRun) -> Iterator[Seen]:
    """Not where the figure is that of a board of several cards."""
    tdp = _peak(recorded.run, "tdp")
    for name in ("power_max", "power_mean"):
        metric = recorded.run.metric(name)
        if not tdp or metric is None or metric.value is None or "whole_board" in metric.marks:
            continue
        if metric.value > OVER_TDP.limits["share"] * tdp:
            figures = {"watts": units.one_decimal(metric.value), "tdp": units.setting(tdp)}
            yield Seen(message("doubt.over_tdp", what=name, **figures), (name,))


IDLE_POWER = Rule(
    "idle_power",
    of=("run", "page"),
    effect="marked",
    metrics=("power_*", "energy*"),
    limits={"share": 0.5, "power": 0.3},
    published="79.3 % of the INT8 peak at 57 of 450 W: base/toolkits/computation-INT8/metax/C550/README.md",
)


def idle_power(recorded: RecordedRun) -> Iterator[Seen]:
    tdp, watts = _peak(recorded.run, "tdp"), value_of(recorded.run, "power_max")
    shares = (metric.inputs.get("share") for metric in recorded.run.metrics)
    share = max([value_of(recorded.run, "mfu") or 0.0, *(each for each in shares if each is not None)])
    if tdp and watts is not None and is_idle(share, watts, tdp, IDLE_POWER.limits):
        figures = {"watts": units.one_decimal(watts), "tdp": units.setting(tdp)}
        yield Seen(message("doubt.idle_power", share=units.percent(share), **figures))


DEVICE_SET_CHANGED = Rule(
    "device_set_changed",
    of=("run",),
    effect="marked",
    metrics=("mem_*", "power_*", "energy", "utilisation_mean", "clock_mean", "temperature_max", "throttled_share"),
    published=(
        "8 cards in the table, 2 in the list of servers: base/benchmarks/main_memory-bandwidth/metax/C550/README.md"
    ),
)


def device_set_changed(recorded: RecordedRun) -> Iterator[Seen]:
    """The cards that were planned, and those that were read."""
    job = recorded.run.job
    planned = {f"{node.index}/{device.id}" for node in job.nodes for device in node.devices}
    found: dict[frozenset[str], list[str]] = {}
    for metric in recorded.run.metrics:
        read = frozenset(metric.inputs.get("per_device", ()))
        is_of_cards = bool(read) and metric.value is not None and "whole_board" not in metric.marks
        if is_of_cards and read != planned and DEVICE_SET_CHANGED.may_mark(metric.name, recorded.run):
            found.setdefault(read, []).append(metric.name)
    for read, names in found.items():
        cards = {"missing": sorted(planned - read)[:NAMED], "added": sorted(read - planned)[:NAMED]}
        yield Seen(message("doubt.device_set_changed", names=names, **cards), tuple(names))


def _per_device(run: Run, name: str) -> dict[str, float]:
    metric = run.metric(name)
    return dict(metric.inputs.get("per_device", {})) if metric is not None and metric.value is not None else {}


def _peak(run: Run, row: str) -> float | None:
    return next((peak.value for peak in run.job.peaks if peak.row == row and peak.value > 0), None)


# --- values that a formula did not give -----------------------------------------------------------------------------

WITHHELD = (
    Rule(
        "wrong_output",
        of=("run",),
        effect="withheld",
        metrics=("figures",),
        messages=("figure.problem",),
        published="in-place all-reduce of ones, infinite from call 43 on: base/benchmarks/interconnect-MPI_intraserver",
    ),
    Rule(
        "quality_out_of_range",
        of=("run",),
        effect="withheld",
        metrics=("*",),
        messages=("quality.out_of_range",),
        published=(
            "an accuracy over 872 rows of which 880 were counted, 0.92 points too many: training/benchmarks/distilbert"
        ),
    ),
    Rule(
        "memory_not_possible",
        of=("run",),
        effect="withheld",
        metrics=("mem_*",),
        messages=(
            "memory.over_total",
            "memory.pool_overdrawn",
            "memory.peak_not_positive",
            "memory.bad_total",
            "memory.below_allocator",
        ),
        published="65.25 of 64 GiB: base/benchmarks/main_memory-capacity/metax/C550/README.md",
    ),
    Rule(
        "energy_too_sparse",
        of=("run",),
        effect="withheld",
        metrics=("energy*",),
        messages=("power.gap", "power.few_samples"),
        published="the same page",
    ),
    Rule(
        "utilisation_not_possible",
        of=("run",),
        effect="withheld",
        metrics=("utilisation_mean",),
        messages=("power.bad_utilisation",),
        published="652.78 and -22.61 %: operation/benchmarks/mm and bitwise_and",
    ),
    Rule(
        "power_not_possible",
        of=("run",),
        effect="withheld",
        metrics=("power_*", "energy*"),
        messages=("power.negative", "power.counter_fell"),
        published="14.59.0W in the cell of a power",
    ),
)
"""Rules that formulas of metrics check: the value is missing, and one of these messages says why."""


def withheld(run: Run) -> Iterator[tuple[Rule, Seen]]:
    """Values that a formula did not give because they cannot be true: one for each cause."""
    for rule in WITHHELD:
        found: dict[str, list[Metric]] = {}
        for metric in run.metrics:
            if metric.reason == "invalid_telemetry" and metric.message and metric.message.code in rule.messages:
                found.setdefault(str(metric.message), []).append(metric)
        for metrics in found.values():
            said = metrics[0].message
            assert said is not None
            yield rule, Seen(said, tuple(metric.name for metric in metrics))


CHECKS: tuple[tuple[Rule, Check], ...] = (
    (NOT_FINITE, not_finite),
    (THROUGHPUT_ORDER, throughput_order),
    (WINDOW_LONGER_THAN_RUN, window_longer_than_run),
    (OUT_OF_RANGE, out_of_range),
    (TOTAL_IS_NOT_CAPACITY, total_is_not_capacity),
    (DEVICES_INCOMPLETE, devices_incomplete),
    (UTILISATION_OVER_100, utilisation_over_100),
    (MFU_DOES_NOT_FOLLOW, mfu_does_not_follow),
    (ABOVE_PEAK, above_peak),
    (TF32_CALLED_FP32, tf32_called_fp32),
    (FEW_REPEATS, few_steps),
    (UNSTEADY, unsteady),
    (THROTTLED, throttled),
    (DIVERGED, diverged),
    (DECIMAL_UNIT, decimal_total),
    (OVER_CAPACITY, marked_over_capacity),
    (MEMORY_OF_OTHERS, memory_of_others),
    (TELEMETRY_GAP, telemetry_gap),
    (IMPLAUSIBLE_UTILISATION, implausible_utilisation),
    (ENERGY_MISMATCH, energy_mismatch),
    (SPARSE_TELEMETRY, sparse_telemetry),
    (MEAN_ABOVE_MAX, mean_above_max),
    (OVER_TDP, over_tdp),
    (IDLE_POWER, idle_power),
    (DEVICE_SET_CHANGED, device_set_changed),
)
