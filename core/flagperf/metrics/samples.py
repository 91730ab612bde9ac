"""DeviceSamples: the memory samples of each card of the job."""

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
"""Node index and device id. The id alone is ambiguous: PCI addresses of two nodes may be equal."""

LATE_INTERVALS, LATE_SECONDS = 15, 30.0
"""A gap counts only above the larger of the two limits. A busy machine delays samples, and a probe pauses for up to 10
intervals if sampling is expensive."""

SILENT_SHARE = 0.05
"""Maximum gap as a share of the workers' run time. A longer gap may hide the peak."""


class SampleGap(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / SECOND_NS


class DeviceSamples(msgspec.Struct, frozen=True):
    """Samples of one card. `readings` holds the readings of used memory while the workers ran, each with its timestamp
    on the node's clock."""

    card: DeviceKey
    boot_id: str
    """Identifies the machine whose clock the timestamps use."""
    probe: str
    interval_seconds: float
    gap: SampleGap
    """The largest gap between samples, including launch and end of the workers."""
    watched_seconds: float
    """From the first of these moments to the last."""
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
        """From the reading at the peak, else from any other reading of the card."""
        known = (reading.total_bytes for _, reading in (self.peak, *self.readings))
        return next((total for total in known if total is not None), None)

    @property
    def has_gap(self) -> bool:
        return self.gap.seconds > max(LATE_INTERVALS * self.interval_seconds, LATE_SECONDS)

    @property
    def was_silent(self) -> bool:
        return self.has_gap and self.gap.seconds > SILENT_SHARE * self.watched_seconds


def device_samples(job: Job, parent: EventFile, files: Sequence[EventFile]) -> dict[DeviceKey, DeviceSamples] | Absent:
    """The samples of all cards of the job. Absent if a card or a long period is missing: a partial maximum would be too
    low."""
    found: dict[DeviceKey, DeviceSamples] = {}
    wanted = {(node.index, device.id) for node in job.nodes for device in node.devices}
    for started, file in probe_files(files):
        found.update(_node_samples(job, started, file, _edges_ns(parent, started.node_index)))
    unrecorded = _unrecorded(parent)
    if unrecorded is not None:
        return unrecorded
    missing = sorted(wanted - set(found))
    if missing:
        return _nothing(missing, files)
    return _died(parent, files) or _silent(found, files) or found


def _unrecorded(parent: EventFile) -> Absent | None:
    """A probe whose failure could not be written among its samples."""
    for ended in of(parent.events, WorkersEnded):
        if ended.probe_failure is not None:
            return absent("invalid_telemetry", "samples.probe_died", node=ended.node_index, why=ended.probe_failure)
    return None


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
            # For host memory, a reading without a figure is no gap: the probe ran, but the worker had no process.
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
    """Launch and end of the node's workers on the node's clock, if recorded."""
    events = of(parent.events, WorkersLaunched) + of(parent.events, WorkersEnded)
    return tuple(event.node_t_ns for event in events if event.node_index == node_index)


def _largest_gap(moments_ns: Sequence[int]) -> SampleGap:
    gaps = [SampleGap(earlier, later) for earlier, later in pairwise(moments_ns)]
    return max(gaps, key=lambda gap: gap.seconds, default=SampleGap(moments_ns[0], moments_ns[0]))


def _died(parent: EventFile, files: Sequence[EventFile]) -> Absent | None:
    """A probe that failed while workers were running. A failure after their end loses no samples."""
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
    """Includes the last of the reasons, if there are any."""
    return absent(reason, f"{code}_because", why=reasons[-1], **params) if reasons else absent(reason, code, **params)


def _why(failed: ProbeFailed) -> Message | str:
    return failed.message or failed.reason


def _reasons(cards: Sequence[DeviceKey], files: Sequence[EventFile]) -> list[tuple[int, Message | str]]:
    """Reasons why these cards were not read, with timestamps, in file order. A probe that failed before it recorded its
    node is included, because it may belong to these cards."""
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
    """Why used memory is missing. Empty for a reading that has it, even if other figures are missing."""
    if reading.used_bytes is not None:
        return []
    found = [reading.missing["used_bytes"]] if "used_bytes" in reading.missing else list(reading.missing.values())
    return [missing_words(text) for text in found]


def missing_words(text: str) -> Message | str:
    """A probe's reason for a missing figure: a code in table [missing] of the message catalogue, or free text."""
    return message(f"missing.{text}") if has_text(f"missing.{text}") else text


def card_name(card: DeviceKey) -> Message:
    return message("name.of_node", what=named("device", [card[1]]), node=card[0])
