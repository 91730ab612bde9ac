"""Memory: what the card says, what the framework's allocator says, and the remainder. Integer bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flagperf.api import Reading
from flagperf.metrics.finding import Absent, Finding, Findings, Found, named
from flagperf.metrics.metric import Mark
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.samples import Card, DeviceSamples, card_name
from flagperf.metrics.throughput import SECOND_NS
from flagperf.spec import Job

TOLERANCE_BYTES = 64 << 20
"""Cards round, and are read between two allocations. A card that says less than the allocator by more is misread."""

ROUNDING = 1.01
"""A vendor's library and tool may round one card's capacity differently (bytes, whole MiB)."""

Devices = Mapping[Card, DeviceSamples]


def memory(job: Job, devices: Devices | Absent, ranks: Sequence[RankRecord], failure: Absent | None) -> Findings:
    allocator = _allocator(job, ranks, failure)
    if isinstance(devices, Absent):
        remainder = allocator if isinstance(allocator, Absent) else devices
        card = dict.fromkeys(("mem_used", "mem_total", "mem_baseline"), devices)
        return {**card, "mem_allocator": allocator, "mem_remainder": remainder}
    fullest = max(devices.values(), key=lambda device: device.peak_bytes)
    implausible = _implausible(devices) or _pool_overdrawn(job, devices) or _below_allocator(devices, ranks)
    findings: dict[str, Finding] = {
        "mem_used": implausible or Found(fullest.peak_bytes, _inputs(fullest, devices, ranks)),
        "mem_total": _total(fullest),
        "mem_baseline": _baseline(fullest, devices),
        "mem_remainder": _remainder(devices, allocator, ranks) if isinstance(allocator, Found) else allocator,
    }
    if implausible and isinstance(allocator, Found):
        findings["mem_remainder"] = implausible
    doubts = device_marks(job, devices)
    return {**{name: _marked(finding, doubts) for name, finding in findings.items()}, "mem_allocator": allocator}


def device_marks(job: Job, devices: Devices) -> tuple[Mark, ...]:
    """What the readings themselves say against the figures."""
    capacities = {(node.index, device.id): device.memory_bytes for node in job.nodes for device in node.devices}
    marks: dict[Mark, None] = {}
    for device in devices.values():
        if device.has_gap:
            marks["telemetry_gap"] = None
        if any(not 0 <= (reading.utilisation_percent or 0) <= 100 for _, reading in device.readings):
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
        "t_ns": fullest.peak[0],
        "peak_seconds": _since_training_seconds(fullest, ranks),
        "probe": fullest.probe,
        "interval_seconds": fullest.interval_seconds,
        "num_samples": len(fullest.readings),
        "largest_gap_seconds": fullest.gap.seconds,
        "per_device": _per_device({card: device.peak_bytes for card, device in devices.items()}),
    }


def _since_training_seconds(device: DeviceSamples, ranks: Sequence[RankRecord]) -> float | None:
    """When the peak was, from the first beginning of training on that node; negative before it. Clocks of two machines
    are never compared."""
    began_ns = [
        began.t_ns
        for record in ranks
        if record.started.node_index == device.card[0] and record.started.clock.boot_id == device.boot_id
        for began in record.began
    ]
    return (device.peak[0] - min(began_ns)) / SECOND_NS if began_ns else None


def _per_device(figures: Mapping[Card, int]) -> dict[str, int]:
    return {f"{node}/{device_id}": figure for (node, device_id), figure in figures.items()}


def _total(device: DeviceSamples) -> Finding:
    if device.total_bytes is None:
        return Absent(
            "not_measured", f"{card_name(device.card)} reported no total{_why(device.peak[1], 'total_bytes')}"
        )
    if device.total_bytes <= 0:
        return Absent("invalid_telemetry", f"{card_name(device.card)} reported a total of {device.total_bytes} bytes")
    return Found(device.total_bytes, {"device_id": device.card[1]})


def _baseline(fullest: DeviceSamples, devices: Devices) -> Finding:
    baseline = fullest.baseline
    if baseline is None or baseline.used_bytes is None:
        why = _why(baseline, "used_bytes") if baseline else ""
        return Absent("not_measured", f"{card_name(fullest.card)} was not read before the workers started{why}")
    known = {
        card: device.baseline.used_bytes
        for card, device in devices.items()
        if device.baseline is not None and device.baseline.used_bytes is not None
    }
    return Found(baseline.used_bytes, {"device_id": fullest.card[1], "per_device": _per_device(known)})


def _why(reading: Reading, field: str) -> str:
    return f": {reading.missing[field]}" if field in reading.missing else ""


def _allocator(job: Job, ranks: Sequence[RankRecord], failure: Absent | None) -> Finding:
    if not job.has_allocator:
        return Absent("not_applicable", f"vendor {job.vendor} has no allocator with figures of its own")
    reserved = {record.rank: _reserved(record) for record in ranks}
    silent = [rank for rank in range(job.world_size) if reserved.get(rank) is None]
    if silent:
        return failure or Absent("not_measured", f"{named('rank', silent)} recorded no allocator peak")
    fullest = max(ranks, key=lambda record: _reserved(record) or 0)
    node_index, device_id = _card(fullest)
    figures = {_card(record): _reserved(record) or 0 for record in ranks}
    inputs = {
        "rank": fullest.rank, "node_index": node_index, "device_id": device_id, "per_device": _per_device(figures),
    }  # fmt: skip
    return Found(_reserved(fullest) or 0, inputs)


def _remainder(devices: Devices, allocator: Found, ranks: Sequence[RankRecord]) -> Finding:
    """Of the card of the rank whose allocator took most. May be negative by less than the tolerance."""
    rank, card = allocator.inputs["rank"], (allocator.inputs["node_index"], allocator.inputs["device_id"])
    device = devices.get(card)
    if device is None:
        return Absent("not_measured", f"{card_name(card)}, of rank {rank}, is not among the sampled ones")
    remainder = int(device.peak_bytes - allocator.value)
    if remainder < -TOLERANCE_BYTES:
        return Absent("invalid_telemetry", _below(device, rank, int(allocator.value)))
    figures = {
        _card(record): devices[_card(record)].peak_bytes - (_reserved(record) or 0)
        for record in ranks
        if _card(record) in devices
    }
    return Found(remainder, {**allocator.inputs, "per_device": _per_device(figures)})


def _implausible(devices: Devices) -> Absent | None:
    for device in devices.values():
        if device.peak_bytes <= 0:
            return Absent("invalid_telemetry", f"{card_name(device.card)} used {device.peak_bytes} bytes at its peak")
        for t_ns, reading in device.readings:
            used, total = reading.used_bytes or 0, reading.total_bytes
            if used < 0 or (total is not None and used > total):
                return Absent(
                    "invalid_telemetry", f"{card_name(device.card)} used {used} of {total} bytes at {t_ns} ns"
                )
    return None


def _pool_overdrawn(job: Job, devices: Devices) -> Absent | None:
    """Slots that share a node's memory all report its total, and together stay below it."""
    if job.memory_scope != "host":
        return None
    used: Counter[tuple[int, int]] = Counter()
    for device in devices.values():
        for t_ns, reading in device.readings:
            moment = (device.card[0], t_ns)
            used[moment] += reading.used_bytes or 0
            if reading.total_bytes is not None and used[moment] > reading.total_bytes:
                figures = f"used {used[moment]} of {reading.total_bytes} bytes at {t_ns} ns"
                return Absent("invalid_telemetry", f"the slots of node {device.card[0]} together {figures}")
    return None


def _below_allocator(devices: Devices, ranks: Sequence[RankRecord]) -> Absent | None:
    """A rank that was not joined to a card says nothing against that card."""
    for record in ranks:
        device = devices.get(_card(record))
        reserved = _reserved(record)
        if device is None or reserved is None or record.started.mapping == "none":
            continue
        if device.peak_bytes + TOLERANCE_BYTES < reserved:
            return Absent("invalid_telemetry", _below(device, record.rank, reserved))
    return None


def _below(device: DeviceSamples, rank: int, reserved: int) -> str:
    return (
        f"{card_name(device.card)} says {device.peak_bytes} bytes at its peak, the allocator of rank {rank} {reserved}"
    )


def _reserved(record: RankRecord) -> int | None:
    return record.ended.allocator_peak_reserved_bytes if record.ended else None


def _card(record: RankRecord) -> Card:
    return record.started.node_index, record.started.device_id
