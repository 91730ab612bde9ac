"""Memory: what the card says, what the framework's allocator says, and the remainder. Integer bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flagperf.metrics.finding import Absent, Finding, Findings, Found, named
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.samples import Card, DeviceSamples
from flagperf.spec import Job

TOLERANCE_BYTES = 64 << 20
"""Cards round, and are read between two allocations. A card that says less than the allocator by more is misread."""

Devices = Mapping[Card, DeviceSamples]


def memory(job: Job, devices: Devices | Absent, ranks: Sequence[RankRecord], failure: Absent | None) -> Findings:
    allocator = _allocator(job, ranks, failure)
    if isinstance(devices, Absent):
        remainder = allocator if isinstance(allocator, Absent) else devices
        card = dict.fromkeys(("mem_used", "mem_total", "mem_baseline"), devices)
        return {**card, "mem_allocator": allocator, "mem_remainder": remainder}
    fullest = max(devices.values(), key=lambda device: device.peak_bytes)
    implausible = _implausible(devices) or _pool_overdrawn(job, devices) or _below_allocator(devices, ranks)
    return {
        "mem_used": implausible or Found(fullest.peak_bytes, _inputs(fullest, devices)),
        "mem_total": _total(fullest),
        "mem_baseline": _baseline(fullest),
        "mem_allocator": allocator,
        "mem_remainder": allocator if isinstance(allocator, Absent) else implausible or _remainder(devices, allocator),
    }


def _inputs(fullest: DeviceSamples, devices: Devices) -> dict[str, Any]:
    return {
        "node_index": fullest.card[0],
        "device_id": fullest.card[1],
        "t_ns": fullest.peak[0],
        "probe": fullest.probe,
        "interval_seconds": fullest.interval_seconds,
        "largest_gap_seconds": fullest.largest_gap_seconds,
        "per_device": {f"{node}/{device_id}": device.peak_bytes for (node, device_id), device in devices.items()},
    }


def _total(device: DeviceSamples) -> Finding:
    if device.total_bytes is None:
        return Absent("not_measured", f"{_name(device.card)} reported no total")
    if device.total_bytes <= 0:
        return Absent("invalid_telemetry", f"{_name(device.card)} reported a total of {device.total_bytes} bytes")
    return Found(device.total_bytes, {"device_id": device.card[1]})


def _baseline(device: DeviceSamples) -> Finding:
    if device.baseline is None or device.baseline.used_bytes is None:
        return Absent("not_measured", f"{_name(device.card)} was not read before the workers started")
    return Found(device.baseline.used_bytes, {"device_id": device.card[1]})


def _allocator(job: Job, ranks: Sequence[RankRecord], failure: Absent | None) -> Finding:
    if not job.has_allocator:
        return Absent("not_applicable", f"vendor {job.vendor} has no allocator with figures of its own")
    reserved = {record.rank: _reserved(record) for record in ranks}
    silent = [rank for rank in range(job.world_size) if reserved.get(rank) is None]
    if silent:
        return failure or Absent("not_measured", f"{named('rank', silent)} recorded no allocator peak")
    fullest = max(ranks, key=lambda record: _reserved(record) or 0)
    node_index, device_id = _card(fullest)
    inputs = {"rank": fullest.rank, "node_index": node_index, "device_id": device_id}
    return Found(_reserved(fullest) or 0, inputs)


def _remainder(devices: Devices, allocator: Found) -> Finding:
    """Of the card of the rank whose allocator took most. May be negative by less than the tolerance."""
    rank, card = allocator.inputs["rank"], (allocator.inputs["node_index"], allocator.inputs["device_id"])
    device = devices.get(card)
    if device is None:
        return Absent("not_measured", f"{_name(card)}, of rank {rank}, is not among the sampled ones")
    remainder = int(device.peak_bytes - allocator.value)
    if remainder < -TOLERANCE_BYTES:
        return Absent("invalid_telemetry", _below(device, rank, int(allocator.value)))
    return Found(remainder, allocator.inputs)


def _implausible(devices: Devices) -> Absent | None:
    for device in devices.values():
        if device.peak_bytes <= 0:
            return Absent("invalid_telemetry", f"{_name(device.card)} used {device.peak_bytes} bytes at its peak")
        for t_ns, reading in device.readings:
            used, total = reading.used_bytes or 0, reading.total_bytes
            if used < 0 or (total is not None and used > total):
                return Absent("invalid_telemetry", f"{_name(device.card)} used {used} of {total} bytes at {t_ns} ns")
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
    return f"{_name(device.card)} says {device.peak_bytes} bytes at its peak, the allocator of rank {rank} {reserved}"


def _reserved(record: RankRecord) -> int | None:
    return record.ended.allocator_peak_reserved_bytes if record.ended else None


def _card(record: RankRecord) -> Card:
    return record.started.node_index, record.started.device_id


def _name(card: Card) -> str:
    return f"device {card[1]} of node {card[0]}"
