"""Figures that contradict each other. No page is written of such a run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flagperf import units
from flagperf.messages import message
from flagperf.plausibility.rule import Check, Rule, Seen, value_of
from flagperf.store.run import RecordedRun

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


def not_finite(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for metric in recorded.run.metrics:
        if metric.value is not None and not math.isfinite(metric.value):
            yield Seen(message("doubt.not_finite", metric=metric.name, value=str(metric.value)), (metric.name,))


def throughput_order(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for higher, lower in ORDERED:
        more, less = value_of(recorded.run, higher), value_of(recorded.run, lower)
        if more is not None and less is not None and more < less * (1 - SLACK):
            figures = {"more": f"{more:.6g}", "less": f"{less:.6g}"}
            yield Seen(message("doubt.throughput_order", higher=higher, lower=lower, **figures), (higher, lower))


def window_longer_than_run(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    samples, speed, whole = (value_of(recorded.run, name) for name in ("samples_kept", "p_whole", "e2e_time"))
    if samples is None or speed is None or whole is None:
        return
    if speed <= 0:
        yield Seen(message("doubt.speed_not_positive", metric="p_whole", value=f"{speed:.6g}"), ("p_whole",))
    elif samples / speed > whole * (1 + SLACK):
        figures = {"samples": units.count(samples), "speed": f"{speed:.6g}"}
        times = {"seconds": f"{samples / speed:.6g}", "whole": f"{whole:.6g}"}
        yield Seen(message("doubt.window_longer_than_run", **figures, **times))


def out_of_range(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
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


def total_is_not_capacity(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    job = recorded.run.job
    used, total = value_of(recorded.run, "mem_used"), value_of(recorded.run, "mem_total")
    capacity = job.device_model.memory_bytes
    if used is None or total is None or capacity is None or job.memory_scope != "device":
        return
    if abs(total - capacity) > capacity * rule.limits["difference"]:
        figures = {"total": units.count(total), "capacity": units.count(capacity)}
        yield Seen(message("doubt.total_is_not_capacity", **figures))


def devices_incomplete(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    job = recorded.run.job
    counts = [len(node.devices) for node in job.nodes]
    if len(set(counts)) != 1 or counts[0] == 0:
        yield Seen(message("doubt.uneven_nodes", counts=counts))
    used = recorded.run.metric("mem_used")
    num_sampled = len(used.inputs.get("per_device", ())) if used else 0
    if num_sampled and num_sampled != job.world_size:
        yield Seen(message("doubt.devices_incomplete", sampled=num_sampled, devices=job.world_size))


def utilisation_over_100(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    for metric in recorded.run.metrics:
        if metric.name.startswith("mfu") and metric.value is not None and not 0 <= metric.value <= 1:
            share = units.percent(metric.value)
            yield Seen(message("doubt.utilisation_over_100", metric=metric.name, share=share), (metric.name,))


def mfu_does_not_follow(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    mfu, speed, peak = recorded.run.metric("mfu"), value_of(recorded.run, "tflops_per_device"), recorded.run.job.peak
    if mfu is None or mfu.value is None or speed is None or peak is None or peak.value <= 0:
        return
    share = speed * 1e12 / peak.value
    if abs(mfu.value - share) * 100 > rule.limits["points"]:
        figures = {"speed": f"{speed:.6g}", "peak": units.teraflops(peak.value)}
        shares = {"mfu": f"{mfu.value:.2%}", "share": f"{share:.2%}"}
        yield Seen(message("doubt.mfu_does_not_follow", **figures, **shares))


CHECKS: tuple[tuple[str, Check], ...] = (
    ("not_finite", not_finite),
    ("throughput_order", throughput_order),
    ("window_longer_than_run", window_longer_than_run),
    ("out_of_range", out_of_range),
    ("total_is_not_capacity", total_is_not_capacity),
    ("devices_incomplete", devices_incomplete),
    ("utilisation_over_100", utilisation_over_100),
    ("mfu_does_not_follow", mfu_does_not_follow),
)
