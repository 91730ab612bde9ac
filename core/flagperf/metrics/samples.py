"""DeviceSamples: the memory of one card while the workers ran, reduced while the file of its node is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import sub

import msgspec

from flagperf.api import Reading
from flagperf.events import AnyEvent, ProbeFailed, ProbeStarted, Sampled, SampleMissed
from flagperf.messages import Message
from flagperf.metrics.card_readings import CardReadings
from flagperf.metrics.cards import DeviceKey, missing_words
from flagperf.units import SECOND_NS

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


class MemoryUse(msgspec.Struct, frozen=True):
    """Used and total bytes at one moment."""

    t_ns: int
    used: int
    total: int | None


class DeviceSamples(msgspec.Struct, frozen=True):
    """Timestamps are those of the node's clock."""

    card: DeviceKey
    boot_id: str
    """Identifies the machine whose clock the timestamps use."""
    probe: str
    interval_seconds: float
    gap: SampleGap
    """The largest gap between samples, including launch and end of the workers."""
    watched_seconds: float
    """From the first of these moments to the last."""
    num_readings: int
    """Of used memory."""
    peak_ns: int
    peak: Reading
    """The first of the readings with the most used memory."""
    total_bytes: int | None
    """From the reading at the peak, else from any other reading of the card."""
    implausible: MemoryUse | None
    """The first reading whose used memory is negative or more than the total."""
    has_bad_utilisation: bool
    """A reading has a utilisation that is not between 0 and 100 %."""
    baseline: Reading | None

    @property
    def peak_bytes(self) -> int:
        return self.peak.used_bytes or 0

    @property
    def has_gap(self) -> bool:
        return self.gap.seconds > max(LATE_INTERVALS * self.interval_seconds, LATE_SECONDS)

    @property
    def was_silent(self) -> bool:
        return self.has_gap and self.gap.seconds > SILENT_SHARE * self.watched_seconds


def card_samples(
    card: DeviceKey, found: CardReadings, started: ProbeStarted, edges_ns: Sequence[int], *, is_host: bool
) -> DeviceSamples | None:
    """`edges_ns` are launch and end of the node's workers. None if used memory was never read."""
    timed = _with_used(found)
    if not timed:
        return None
    # For host memory, a reading without a figure is no gap: the probe ran, but the worker had no process.
    watched_ns = found.times_ns if is_host else [t_ns for t_ns, _ in timed]
    moments_ns = sorted((*watched_ns, *edges_ns))
    used = [reading.used_bytes or 0 for _, reading in timed]
    peak_ns, peak = timed[used.index(max(used))]
    utilisations = [reading.utilisation_percent or 0 for _, reading in timed]
    totals = (reading.total_bytes for _, reading in ((peak_ns, peak), *timed))
    return DeviceSamples(
        card=card,
        boot_id=started.clock.boot_id,
        probe=started.probe,
        interval_seconds=started.interval_seconds,
        gap=_largest_gap(moments_ns),
        watched_seconds=(moments_ns[-1] - moments_ns[0]) / SECOND_NS,
        num_readings=len(timed),
        peak_ns=peak_ns,
        peak=peak,
        total_bytes=next((total for total in totals if total is not None), None),
        implausible=_implausible(timed),
        has_bad_utilisation=not 0 <= min(utilisations) <= max(utilisations) <= 100,
        baseline=found.baseline,
    )


Timed = Sequence[tuple[int, Reading]]


def _with_used(found: CardReadings) -> Timed:
    pairs = zip(found.times_ns, found.readings, strict=True)
    return [(t_ns, reading) for t_ns, reading in pairs if reading.used_bytes is not None]


def _largest_gap(moments_ns: Sequence[int]) -> SampleGap:
    gaps_ns = list(map(sub, moments_ns[1:], moments_ns)) or [0]
    first = gaps_ns.index(max(gaps_ns))
    return SampleGap(moments_ns[first], moments_ns[first] + gaps_ns[first])


def _implausible(timed: Timed) -> MemoryUse | None:
    for t_ns, reading in timed:
        used, total = reading.used_bytes or 0, reading.total_bytes
        if used < 0 or (total is not None and used > total):
            return MemoryUse(t_ns, used, total)
    return None


def overdrawn_pool(cards: Sequence[CardReadings]) -> MemoryUse | None:
    """Slots that share a node's memory each report its total. Together they cannot use more than that."""
    used: Counter[int] = Counter()
    for card in cards:
        for t_ns, reading in _with_used(card):
            used[t_ns] += reading.used_bytes or 0
            if reading.total_bytes is not None and used[t_ns] > reading.total_bytes:
                return MemoryUse(t_ns, used[t_ns], reading.total_bytes)
    return None


# --- why there is no figure -----------------------------------------------------------------------------------------


class NotRead(msgspec.Struct, frozen=True):
    """Why used memory was not read at one moment: of one card, or of all (`device_id` is empty)."""

    t_ns: int
    device_id: str
    why: Message | str


def reasons_in(events: Sequence[AnyEvent]) -> Iterator[NotRead]:
    """In the order of the file."""
    for event in events:
        if isinstance(event, Sampled):
            for reading in event.readings:
                if reading.used_bytes is None:
                    yield from (NotRead(event.t_ns, reading.device_id, why) for why in _missing_used(reading.missing))
        elif isinstance(event, ProbeFailed):
            yield NotRead(event.t_ns, "", why_failed(event))
        elif isinstance(event, SampleMissed):
            yield NotRead(event.t_ns, "", event.reason)


def why_failed(failed: ProbeFailed) -> Message | str:
    return failed.message or failed.reason


def _missing_used(missing: Mapping[str, str]) -> list[Message | str]:
    """If used memory has no reason of its own, those of the other figures."""
    return [missing_words(text) for text in ([missing["used_bytes"]] if "used_bytes" in missing else missing.values())]
