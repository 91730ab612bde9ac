"""DeviceSamples: what the probes said of each card of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from flagperf.api import Reading
from flagperf.events import (
    EventFile,
    ProbeFailed,
    ProbeStarted,
    Sampled,
    SampleMissed,
    WorkersEnded,
    WorkersLaunched,
)
from flagperf.messages import Message, has_text, message
from flagperf.metrics.finding import Absent, absent, named
from flagperf.metrics.metric import Reason
from flagperf.metrics.ranks import of
from flagperf.spec import Job
from flagperf.units import SECOND_NS

DeviceKey = tuple[int, str]
"""Node index and device id: PCI addresses of two nodes may be equal."""

LATE_INTERVALS, LATE_SECONDS = 15, 30.0
"""Samples that are late by no more than the larger of both are those of a busy machine. A probe whose sampling is
expensive pauses for up to 10 intervals by itself."""

SILENT_SHARE = 0.05
"""Of the time that the workers ran: a longer gap may hide the peak."""


class SampleGap(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / SECOND_NS


class DeviceSamples(msgspec.Struct, frozen=True):
    """One card. `readings` are those with a used figure while workers ran, each with its time on the node's clock."""

    card: DeviceKey
    boot_id: str
    """Whose clock that is."""
    probe: str
    interval_seconds: float
    gap: SampleGap
    """The largest, launch and end of the workers included."""
    watched_seconds: float
    """From the first of those moments to the last."""
    readings: tuple[tuple[int, Reading], ...]
    baseline: Reading | None

    @property
    def peak(self) -> tuple[int, Reading]:
        return max(self.readings, key=lambda timed: timed[1].used_bytes or 0)

    @property
    def peak_bytes(self) -> int:
        return self.peak[1].used_bytes or 0

    @property
    def total_bytes(self) -> int | None:
        """By the reading of the peak, else by any other of the card."""
        known = (reading.total_bytes for _, reading in (self.peak, *self.readings))
        return next((total for total in known if total is not None), None)

    @property
    def has_gap(self) -> bool:
        return self.gap.seconds > max(LATE_INTERVALS * self.interval_seconds, LATE_SECONDS)

    @property
    def was_silent(self) -> bool:
        return self.has_gap and self.gap.seconds > SILENT_SHARE * self.watched_seconds


def device_samples(job: Job, parent: EventFile, files: Sequence[EventFile]) -> dict[DeviceKey, DeviceSamples] | Absent:
    """Of all cards of the job: a maximum over some of them, or over some of the time, would say too little."""
    found: dict[DeviceKey, DeviceSamples] = {}
    wanted = {(node.index, device.id) for node in job.nodes for device in node.devices}
    for started, file in probe_files(files):
        found.update(_node_samples(job, started, file, _edges_ns(parent, started.node_index)))
    missing = sorted(wanted - set(found))
    if missing:
        return _nothing(missing, files)
    return _died(parent, files) or _silent(found, files) or found


def probe_files(files: Sequence[EventFile]) -> Iterator[tuple[ProbeStarted, EventFile]]:
    for file in files:
        for started in of(file.events, ProbeStarted)[:1]:
            yield started, file


def _node_samples(
    job: Job, started: ProbeStarted, file: EventFile, edges_ns: tuple[int, ...]
) -> Mapping[DeviceKey, DeviceSamples]:
    samples = of(file.events, Sampled)
    ids = sorted(device.id for node in job.nodes if node.index == started.node_index for device in node.devices)
    found: dict[DeviceKey, DeviceSamples] = {}
    for device_id in ids:
        answers = _readings(samples, device_id, baseline=False)
        readings = tuple((t_ns, reading) for t_ns, reading in answers if reading.used_bytes is not None)
        if readings:
            card = (started.node_index, device_id)
            # Where memory is the processes' own, no figure means no process: the probe looked, and there was no use.
            watched = answers if job.memory_scope == "host" else readings
            moments_ns = sorted((*(t_ns for t_ns, _ in watched), *edges_ns))
            baselines = _readings(samples, device_id, baseline=True)
            found[card] = DeviceSamples(
                card=card,
                boot_id=started.clock.boot_id,
                probe=started.probe,
                interval_seconds=started.interval_seconds,
                gap=_largest_gap(moments_ns),
                watched_seconds=(moments_ns[-1] - moments_ns[0]) / SECOND_NS,
                readings=readings,
                baseline=baselines[-1][1] if baselines else None,
            )
    return found


def _readings(samples: Sequence[Sampled], device_id: str, baseline: bool) -> tuple[tuple[int, Reading], ...]:
    return tuple(
        (sample.t_ns, reading)
        for sample in samples
        if sample.baseline == baseline
        for reading in sample.readings
        if reading.device_id == device_id
    )


def _edges_ns(parent: EventFile, node_index: int) -> tuple[int, ...]:
    """When the node's workers were launched and ended, on the node's clock, as far as that is known."""
    events = of(parent.events, WorkersLaunched) + of(parent.events, WorkersEnded)
    return tuple(event.node_t_ns for event in events if event.node_index == node_index)


def _largest_gap(moments_ns: Sequence[int]) -> SampleGap:
    gaps = [SampleGap(earlier, later) for earlier, later in pairwise(moments_ns)]
    return max(gaps, key=lambda gap: gap.seconds, default=SampleGap(moments_ns[0], moments_ns[0]))


def _died(parent: EventFile, files: Sequence[EventFile]) -> Absent | None:
    """A probe that the workers survived. One that fails after their end had seen all there was to see."""
    for started, file in probe_files(files):
        ends_ns = [
            event.node_t_ns for event in of(parent.events, WorkersEnded) if event.node_index == started.node_index
        ]
        for failed in of(file.events, ProbeFailed):
            if not ends_ns or failed.t_ns < max(ends_ns):
                return absent("invalid_telemetry", "samples.probe_died", node=started.node_index, why=_why(failed))
    return None


def _silent(devices: Mapping[DeviceKey, DeviceSamples], files: Sequence[EventFile]) -> Absent | None:
    for device in devices.values():
        if device.was_silent:
            reasons = [reason for t_ns, reason in _reasons([device.card], files) if _within(t_ns, device.gap)]
            spans = {"part": f"{device.gap.seconds:.1f}", "whole": f"{device.watched_seconds:.1f}"}
            return _because("invalid_telemetry", "samples.silent", reasons, card=card_name(device.card), **spans)
    return None


def _within(t_ns: int, gap: SampleGap) -> bool:
    return gap.began_ns <= t_ns <= gap.ended_ns


def _nothing(missing: Sequence[DeviceKey], files: Sequence[EventFile]) -> Absent:
    node = missing[0][0]
    names = named("device", [device_id for node_index, device_id in missing if node_index == node])
    reasons = [reason for _, reason in _reasons(missing, files)]
    return _because("not_measured", "samples.none", reasons, cards=message("name.of_node", what=names, node=node))


def _because(reason: Reason, code: str, reasons: Sequence[Message | str], /, **params: Any) -> Absent:
    """With the last of the reasons, where there are any."""
    return absent(reason, f"{code}_because", why=reasons[-1], **params) if reasons else absent(reason, code, **params)


def _why(failed: ProbeFailed) -> Message | str:
    return failed.message or failed.reason


def _reasons(cards: Sequence[DeviceKey], files: Sequence[EventFile]) -> list[tuple[int, Message | str]]:
    """Why these cards were not read, each with its time, in the order of their files. A probe that never got so far as
    to say whose it is may be theirs."""
    found: list[tuple[int, Message | str]] = []
    for file in files:
        nodes = {started.node_index for started in of(file.events, ProbeStarted)}
        ids = {device_id for node_index, device_id in cards if node_index in nodes}
        if nodes and not ids:
            continue
        for event in file.events:
            if isinstance(event, ProbeFailed):
                found.append((event.t_ns, _why(event)))
            elif isinstance(event, SampleMissed):
                found.append((event.t_ns, event.reason))
            elif isinstance(event, Sampled):
                own = [reading for reading in event.readings if reading.device_id in ids]
                found += [(event.t_ns, reason) for reading in own for reason in _missing_used(reading)]
    return found


def _missing_used(reading: Reading) -> list[Message | str]:
    """Nothing for a reading that has the figure, whatever else it lacks."""
    if reading.used_bytes is not None:
        return []
    found = [reading.missing["used_bytes"]] if "used_bytes" in reading.missing else list(reading.missing.values())
    return [missing_words(text) for text in found]


def missing_words(text: str) -> Message | str:
    """What a probe says of a figure that it does not have: a code of the catalogue's table [missing], or its words."""
    return message(f"missing.{text}") if has_text(f"missing.{text}") else text


def card_name(card: DeviceKey) -> Message:
    return message("name.of_node", what=named("device", [card[1]]), node=card[0])
