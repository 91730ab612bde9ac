"""DeviceSamples: what the probes said of each card of the job, and what the probes themselves cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from flagperf.api import Reading
from flagperf.events import EventFile, ProbeEnded, ProbeStarted, Sampled, SampleMissed, WorkersEnded, WorkersLaunched
from flagperf.metrics.finding import Absent, Finding, Found, named
from flagperf.metrics.ranks import of
from flagperf.metrics.throughput import SECOND_NS
from flagperf.spec import Job

Card = tuple[int, str]
"""Node index and device id: PCI addresses of two nodes may be equal."""


class DeviceSamples(msgspec.Struct, frozen=True):
    """One card. `readings` are those with a used figure while workers ran, each with its time on the node's clock."""

    card: Card
    probe: str
    interval_seconds: float
    largest_gap_seconds: float
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


def device_samples(job: Job, parent: EventFile, files: Sequence[EventFile]) -> dict[Card, DeviceSamples] | Absent:
    """Of all cards of the job: a maximum over some of them would say too little."""
    found: dict[Card, DeviceSamples] = {}
    wanted = {(node.index, device.id) for node in job.nodes for device in node.devices}
    for file in files:
        for started in of(file.events, ProbeStarted)[:1]:
            edges_ns = _edges_ns(parent, started.node_index)
            found.update(_node_samples(started, file, edges_ns, wanted))
    missing = sorted(wanted - set(found))
    return _nothing(missing, files) if missing else found


def probe_cost(job: Job, files: Sequence[EventFile]) -> Finding:
    costs: dict[str, float] = {}
    for file in files:
        for started, ended in zip(of(file.events, ProbeStarted), of(file.events, ProbeEnded), strict=False):
            if ended.wall_seconds <= 0 or ended.cpu_seconds < 0:
                return Absent("invalid_telemetry", f"the probe of node {started.node_index} ran {ended.wall_seconds} s")
            costs[str(started.node_index)] = ended.cpu_seconds / ended.wall_seconds
    missing = [node.index for node in job.nodes if str(node.index) not in costs]
    if missing:
        return Absent("not_measured", f"the probe of {named('node', missing)} did not record its end")
    return Found(max(costs.values()), {"per_node": costs})


def _node_samples(
    started: ProbeStarted, file: EventFile, edges_ns: tuple[int, ...], wanted: set[Card]
) -> Mapping[Card, DeviceSamples]:
    samples = of(file.events, Sampled)
    ids = sorted(device_id for node_index, device_id in wanted if node_index == started.node_index)
    found: dict[Card, DeviceSamples] = {}
    for device_id in ids:
        readings = _readings(samples, device_id, baseline=False)
        if readings:
            card = (started.node_index, device_id)
            gap_seconds = _largest_gap_ns([t_ns for t_ns, _ in readings], edges_ns) / SECOND_NS
            baselines = _readings(samples, device_id, baseline=True)
            found[card] = DeviceSamples(
                card=card,
                probe=started.probe,
                interval_seconds=started.interval_seconds,
                largest_gap_seconds=gap_seconds,
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
        if reading.device_id == device_id and reading.used_bytes is not None
    )


def _edges_ns(parent: EventFile, node_index: int) -> tuple[int, ...]:
    """When the node's workers were launched and ended, on the node's clock, as far as that is known."""
    events = of(parent.events, WorkersLaunched) + of(parent.events, WorkersEnded)
    return tuple(event.node_t_ns for event in events if event.node_index == node_index)


def _largest_gap_ns(moments_ns: Sequence[int], edges_ns: Sequence[int]) -> int:
    gaps = [later - earlier for earlier, later in pairwise(sorted((*moments_ns, *edges_ns)))]
    return max(gaps, default=0)


def _nothing(missing: Sequence[Card], files: Sequence[EventFile]) -> Absent:
    cards = named("device", [f"{device_id} of node {node_index}" for node_index, device_id in missing])
    reasons = [event.reason for file in files for event in of(file.events, SampleMissed)]
    reasons += [
        reason
        for file in files
        for sample in of(file.events, Sampled)
        for reading in sample.readings
        for reason in reading.missing.values()
    ]
    return Absent("not_measured", f"no memory was sampled of {cards}{f': {reasons[-1]}' if reasons else ''}")
