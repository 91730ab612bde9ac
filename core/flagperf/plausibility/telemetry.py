"""Doubts about what a probe read: memory, power, and of which cards."""

from __future__ import annotations

from collections.abc import Iterator

from flagperf import units
from flagperf.messages import message
from flagperf.plausibility.arithmetic import differ_by_unit, is_idle
from flagperf.plausibility.rule import Check, Rule, Seen, value_of
from flagperf.store.run import RecordedRun, Run
from flagperf.units import GIB

NAMED = 4
"""Cards that a doubt names at most."""


def decimal_total(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    """The probe and the description of the card, one in GB and one in GiB."""
    total, capacity = value_of(recorded.run, "mem_total"), recorded.run.job.device_model.memory_bytes
    if total is None or not capacity or recorded.run.job.memory_scope != "device":
        return
    if differ_by_unit(total, capacity, rule.limits["difference"]):
        figures = {"total": units.count(total), "capacity": units.count(capacity)}
        yield Seen(message("doubt.decimal_total", **figures), ("mem_total", "mem_used"))


def marked_over_capacity(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    """What the formula of memory marked, in numbers."""
    used, capacity = recorded.run.metric("mem_used"), recorded.run.job.device_model.memory_bytes
    if used is not None and used.value is not None and "over_capacity" in used.marks and capacity:
        figures = {"used": f"{used.value / GIB:.2f}", "total": f"{capacity / GIB:.2f}"}
        yield Seen(message("doubt.over_capacity", what=used.name, **figures), (used.name,))


def memory_of_others(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    remainder, allocator = recorded.run.metric("mem_remainder"), recorded.run.metric("mem_allocator")
    if remainder is None or allocator is None or remainder.value is None:
        return
    reserved = allocator.inputs.get("per_device", {})
    for card, others in remainder.inputs.get("per_device", {}).items():
        own = reserved.get(card)
        if own is not None and others > max(own, rule.limits["gib"] * GIB):
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


def telemetry_gap(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    yield from marked_by_formula(recorded, "telemetry_gap")


def implausible_utilisation(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    yield from marked_by_formula(recorded, "implausible_utilisation")


def energy_mismatch(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    yield from marked_by_formula(recorded, "energy_mismatch")


def sparse_telemetry(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    memory = recorded.run.metric("mem_used")
    period = max(recorded.run.job.sample_seconds, (memory.inputs.get("interval_seconds") or 0) if memory else 0)
    longest = period * rule.limits["periods"]
    found: dict[tuple[int, float], list[str]] = {}
    for metric in recorded.run.metrics:
        samples, gap = metric.inputs.get("num_samples"), metric.inputs.get("largest_gap_seconds")
        if metric.value is None or samples is None or gap is None or not rule.may_mark(metric.name, recorded.run):
            continue
        if samples < rule.limits["samples"] or gap > longest:
            found.setdefault((samples, gap), []).append(metric.name)
    for (samples, gap), names in found.items():
        allowed = {"needed": units.count(rule.limits["samples"]), "longest": f"{longest:g}"}
        figures = {"samples": samples, "gap": f"{gap:.3g}"}
        yield Seen(message("doubt.sparse_telemetry", names=names, **figures, **allowed), tuple(names))


def mean_above_max(recorded: RecordedRun, _rule: Rule) -> Iterator[Seen]:
    means, highest = (_per_device(recorded.run, name) for name in ("power_mean", "power_max"))
    for card, mean in means.items():
        if card in highest and mean > highest[card] * (1 + 1e-9):
            figures = {"mean": units.one_decimal(mean), "high": units.one_decimal(highest[card])}
            yield Seen(message("doubt.mean_above_max", what=card, **figures))
            return


def over_tdp(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    """Not where the figure is that of a board of several cards."""
    tdp = _peak(recorded.run, "tdp")
    for name in ("power_max", "power_mean"):
        metric = recorded.run.metric(name)
        if not tdp or metric is None or metric.value is None or "whole_board" in metric.marks:
            continue
        if metric.value > rule.limits["share"] * tdp:
            figures = {"watts": units.one_decimal(metric.value), "tdp": units.setting(tdp)}
            yield Seen(message("doubt.over_tdp", what=name, **figures), (name,))


def idle_power(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    tdp, watts = _peak(recorded.run, "tdp"), value_of(recorded.run, "power_max")
    shares = (metric.inputs.get("share") for metric in recorded.run.metrics)
    share = max([value_of(recorded.run, "mfu") or 0.0, *(each for each in shares if each is not None)])
    if tdp and watts is not None and is_idle(share, watts, tdp, rule.limits):
        figures = {"watts": units.one_decimal(watts), "tdp": units.setting(tdp)}
        yield Seen(message("doubt.idle_power", share=units.percent(share), **figures))


def device_set_changed(recorded: RecordedRun, rule: Rule) -> Iterator[Seen]:
    """The cards that were planned, and those that were read."""
    job = recorded.run.job
    planned = {f"{node.index}/{device.id}" for node in job.nodes for device in node.devices}
    found: dict[frozenset[str], list[str]] = {}
    for metric in recorded.run.metrics:
        read = frozenset(metric.inputs.get("per_device", ()))
        is_of_cards = bool(read) and metric.value is not None and "whole_board" not in metric.marks
        if is_of_cards and read != planned and rule.may_mark(metric.name, recorded.run):
            found.setdefault(read, []).append(metric.name)
    for read, names in found.items():
        cards = {"missing": sorted(planned - read)[:NAMED], "added": sorted(read - planned)[:NAMED]}
        yield Seen(message("doubt.device_set_changed", names=names, **cards), tuple(names))


def _per_device(run: Run, name: str) -> dict[str, float]:
    metric = run.metric(name)
    return dict(metric.inputs.get("per_device", {})) if metric is not None and metric.value is not None else {}


def _peak(run: Run, row: str) -> float | None:
    return next((peak.value for peak in run.job.peaks if peak.row == row and peak.value > 0), None)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("decimal_unit", decimal_total),
    ("over_capacity", marked_over_capacity),
    ("memory_of_others", memory_of_others),
    ("telemetry_gap", telemetry_gap),
    ("implausible_utilisation", implausible_utilisation),
    ("energy_mismatch", energy_mismatch),
    ("sparse_telemetry", sparse_telemetry),
    ("mean_above_max", mean_above_max),
    ("over_tdp", over_tdp),
    ("idle_power", idle_power),
    ("device_set_changed", device_set_changed),
)
