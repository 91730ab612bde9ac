"""Memory in bytes (integers): what the card reports, what the framework's allocator reports, and the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from flagperf import units
from flagperf.api import Reading
from flagperf.kinds import Text
from flagperf.metrics.entry import (
    CARD,
    Absent,
    DeviceKey,
    Finding,
    Formula,
    Found,
    Mark,
    MetricEntry,
    Scope,
    absent,
    card_name,
    missing_words,
    named,
)
from flagperf.metrics.observed import Observed
from flagperf.spec.job import Job
from flagperf.units import SECOND_NS

if TYPE_CHECKING:
    from flagperf.metrics.node_record import DeviceSamples, MemoryUse, NodeRecord
    from flagperf.metrics.rank_record import RankRecord

    Devices = Mapping[DeviceKey, DeviceSamples]

TOLERANCE_BYTES = 64 << 20
"""Cards round their figures and may be sampled between two allocations. If a card reports less than the allocator by
more than this, the wrong card was read."""

ROUNDING = 1.01
"""A vendor's library and tool may round one card's capacity differently (bytes, whole MiB)."""


def of_devices(formula: Callable[[Devices, Observed], Finding]) -> Formula:
    """A formula over the samples of all cards. Its finding gets the marks of suspicious readings."""

    def guarded(run: Observed) -> Finding:
        if isinstance(run.devices, Absent):
            return run.devices
        return _marked(formula(run.devices, run), device_marks(run.job, run.devices))

    return guarded


def mem_used(devices: Devices, run: Observed) -> Finding:
    fullest = fullest_of(devices)
    return _implausible_memory(devices, run) or Found(fullest.peak_bytes, _inputs(fullest, devices, run.ranks))


def mem_total(devices: Devices, _run: Observed) -> Finding:
    device = fullest_of(devices)
    if device.total_bytes is None:
        return _unread("memory.no_total", device.card, device.peak, "total_bytes")
    if device.total_bytes <= 0:
        return absent("invalid_telemetry", "memory.bad_total", card=card_name(device.card), total=device.total_bytes)
    return Found(device.total_bytes, {"device_id": device.card[1]})


def mem_baseline(devices: Devices, _run: Observed) -> Finding:
    fullest = fullest_of(devices)
    baseline = fullest.baseline
    if baseline is None or baseline.used_bytes is None:
        return _unread("memory.no_baseline", fullest.card, baseline, "used_bytes")
    known = {
        card: device.baseline.used_bytes
        for card, device in devices.items()
        if device.baseline is not None and device.baseline.used_bytes is not None
    }
    return Found(baseline.used_bytes, {"device_id": fullest.card[1], "per_device": per_device(known)})


def mem_allocator(run: Observed) -> Finding:
    if not run.job.has_allocator:
        return absent("not_applicable", "memory.no_allocator", vendor=run.job.vendor)
    reserved = {record.rank: _reserved(record) for record in run.ranks}
    silent = [rank for rank in range(run.job.world_size) if reserved.get(rank) is None]
    if silent:
        return run.failure or absent("not_measured", "memory.no_allocator_peak", who=named("rank", silent))
    fullest = max(run.ranks, key=lambda record: _reserved(record) or 0)
    node_index, device_id = fullest.card
    figures = per_device({record.card: _reserved(record) or 0 for record in run.ranks})
    inputs = {"rank": fullest.rank, "node_index": node_index, "device_id": device_id, "per_device": figures}
    return Found(_reserved(fullest) or 0, inputs)


def mem_remainder(run: Observed) -> Finding:
    """For the card of the rank whose allocator reserved most. May be negative within the tolerance."""
    allocator = mem_allocator(run)
    if isinstance(allocator, Absent):
        return allocator
    return of_devices(lambda devices, _run: _remainder(devices, allocator, run))(run)


def fullest_of(devices: Devices) -> DeviceSamples:
    return max(devices.values(), key=lambda device: device.peak_bytes)


def _implausible_memory(devices: Devices, run: Observed) -> Absent | None:
    return _implausible(devices) or _pool_overdrawn(run.nodes) or _below_allocator(devices, run.ranks)


def device_marks(job: Job, devices: Devices) -> tuple[Mark, ...]:
    """Marks for readings that cast doubt on the figures."""
    capacities = {(node.index, device.id): device.memory_bytes for node in job.nodes for device in node.devices}
    marks: dict[Mark, None] = {}
    for device in devices.values():
        if device.has_gap:
            marks["telemetry_gap"] = None
        if device.has_bad_utilisation:
            marks["implausible_utilisation"] = None
        capacity = capacities.get(device.card) if job.memory_scope == "device" else None
        if capacity and device.peak_bytes > capacity * ROUNDING:
            marks |= {"over_capacity": None, "unverified_mapping": None}
    return tuple(marks)


def _marked(finding: Finding, marks: tuple[Mark, ...]) -> Finding:
    return finding if isinstance(finding, Absent) else msgspec.structs.replace(finding, marks=finding.marks + marks)


def _inputs(fullest: DeviceSamples, devices: Devices, ranks: Sequence[RankRecord]) -> dict[str, Any]:
    return {
        "node_index": fullest.card[0],
        "device_id": fullest.card[1],
        "t_ns": fullest.peak_ns,
        "peak_seconds": _since_training_seconds(fullest, ranks),
        "probe": fullest.probe,
        "interval_seconds": fullest.interval_seconds,
        "num_samples": fullest.num_readings,
        "largest_gap_seconds": fullest.gap.seconds,
        "per_device": per_device({card: device.peak_bytes for card, device in devices.items()}),
    }


def _since_training_seconds(device: DeviceSamples, ranks: Sequence[RankRecord]) -> float | None:
    """Time of the peak relative to the first start of the measured span on that node; negative if before it. None if no
    rank started the span on that machine's clock: clocks of two machines are never compared."""
    began_ns = [
        record.began_ns
        for record in ranks
        if record.began_ns is not None
        and (record.started.node_index, record.started.clock.boot_id) == (device.card[0], device.boot_id)
    ]
    return (device.peak_ns - min(began_ns)) / SECOND_NS if began_ns else None


def per_device(figures: Mapping[DeviceKey, Any]) -> dict[str, Any]:
    return {f"{node}/{device_id}": figure for (node, device_id), figure in figures.items()}


def _unread(code: str, card: DeviceKey, reading: Reading | None, field: str) -> Absent:
    """Includes the probe's reason, if it gave one."""
    why = reading.missing.get(field) if reading else None
    if why is None:
        return absent("not_measured", code, card=card_name(card))
    return absent("not_measured", f"{code}_because", card=card_name(card), why=missing_words(why))


def _remainder(devices: Devices, allocator: Found, run: Observed) -> Finding:
    implausible = _implausible_memory(devices, run)
    if implausible:
        return implausible
    rank, card = allocator.inputs["rank"], (allocator.inputs["node_index"], allocator.inputs["device_id"])
    device = devices.get(card)
    if device is None:
        return absent("not_measured", "memory.card_not_sampled", card=card_name(card), rank=rank)
    remainder = int(device.peak_bytes - allocator.value)
    if remainder < -TOLERANCE_BYTES:
        return _below(device, rank, int(allocator.value))
    figures = {
        record.card: devices[record.card].peak_bytes - (_reserved(record) or 0)
        for record in run.ranks
        if record.card in devices
    }
    return Found(remainder, {**allocator.inputs, "per_device": per_device(figures)})


def _implausible(devices: Devices) -> Absent | None:
    for device in devices.values():
        if device.peak_bytes <= 0:
            peak = {"card": card_name(device.card), "used": device.peak_bytes}
            return absent("invalid_telemetry", "memory.peak_not_positive", **peak)
        if device.implausible is not None:
            return absent(
                "invalid_telemetry", "memory.over_total", card=card_name(device.card), **_use(device.implausible)
            )
    return None


def _pool_overdrawn(nodes: Sequence[NodeRecord]) -> Absent | None:
    for node in nodes:
        if node.started is not None and node.overdrawn is not None:
            used = _use(node.overdrawn)
            return absent("invalid_telemetry", "memory.pool_overdrawn", node=node.started.node_index, **used)
    return None


def _use(use: MemoryUse) -> dict[str, Any]:
    return {"used": use.used, "total": use.total, "at": use.t_ns}


def _below_allocator(devices: Devices, ranks: Sequence[RankRecord]) -> Absent | None:
    """Ranks without a verified mapping to a card are skipped."""
    for record in ranks:
        device = devices.get(record.card)
        reserved = _reserved(record)
        if device is None or reserved is None or record.started.mapping == "none":
            continue
        if device.peak_bytes + TOLERANCE_BYTES < reserved:
            return _below(device, record.rank, reserved)
    return None


def _below(device: DeviceSamples, rank: int, reserved: int) -> Absent:
    figures = {"peak": device.peak_bytes, "rank": rank, "reserved": reserved}
    return absent("invalid_telemetry", "memory.below_allocator", card=card_name(device.card), **figures)


def _reserved(record: RankRecord) -> int | None:
    return record.ended.allocator_peak_reserved_bytes if record.ended else None


def _entry(name: str, scope: Scope, formula: Formula, title: Text, remark: Text, **more: Any) -> MetricEntry:
    return MetricEntry(
        name=name,
        unit="bytes",
        group="memory",
        scope=scope,
        formula=formula,
        format=units.gib,
        shown_unit="GiB",
        marks=CARD,
        title=title,
        remark=remark,
        **more,
    )


METRICS = (
    _entry(
        "mem_used",
        "device",
        of_devices(mem_used),
        {"en": "Device memory used", "zh": "硬件存储峰值"},
        {"en": "peak of one device, GiB", "zh": "单卡峰值，单位GiB"},
        better="lower",
    ),
    _entry(
        "mem_total",
        "device",
        of_devices(mem_total),
        {"en": "Device memory", "zh": "硬件存储总量"},
        {"en": "as the device reports it, GiB", "zh": "设备报告的总量，单位GiB"},
    ),
    _entry(
        "mem_baseline",
        "device",
        of_devices(mem_baseline),
        {"en": "Memory before the workers", "zh": "启动前的硬件存储使用"},
        {"en": "on the same device, GiB", "zh": "同一设备，单位GiB"},
    ),
    _entry(
        "mem_allocator",
        "rank",
        mem_allocator,
        {"en": "Memory of the allocator", "zh": "框架分配器的存储"},
        {"en": "what the framework reserved at its peak, GiB", "zh": "框架保留的峰值，单位GiB"},
        better="lower",
    ),
    _entry(
        "mem_remainder",
        "device",
        mem_remainder,
        {"en": "Memory outside the allocator", "zh": "分配器之外的存储"},
        {"en": "device peak without the allocator's, GiB", "zh": "设备峰值减去分配器峰值，单位GiB"},
    ),
)
