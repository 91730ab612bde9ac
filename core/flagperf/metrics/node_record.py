"""NodeRecord: one node's samples, checked and reduced to the memory, the series and the power of its cards."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import gt, lt, sub
from typing import Any, Literal

import msgspec

from flagperf.api import Reading
from flagperf.event_files import EventFile, EventsByType, Span, of_type
from flagperf.events import (
    AnyEvent,
    CpuUse,
    ProbeEnded,
    ProbeFailed,
    ProbeStarted,
    Sampled,
    SampleMissed,
    WorkersEnded,
    WorkersLaunched,
)
from flagperf.messages import Message, message
from flagperf.metrics.entry import Absent, DeviceKey, Reason, absent, card_name, missing_words, named
from flagperf.metrics.rows import MeasuredRow
from flagperf.spec.job import Job
from flagperf.units import SECOND_NS


class CardReadings(msgspec.Struct):
    """The readings of one card. They exist only while the file of its node is read."""

    times_ns: list[int] = []
    """While the workers ran, in the order of the file, like `readings`."""
    readings: list[Reading] = []
    baseline: Reading | None = None
    """The last one before they started."""


def readings_by_card(samples: Iterable[Sampled]) -> dict[str, CardReadings]:
    """Return the readings of every card that was read, by device id."""
    found: dict[str, CardReadings] = {}
    for sample in samples:
        for reading in sample.readings:
            card = found.get(reading.device_id)
            if card is None:
                card = found[reading.device_id] = CardReadings()
            if sample.baseline:
                card.baseline = reading
            else:
                card.times_ns.append(sample.t_ns)
                card.readings.append(reading)
    return found


# Memory of a card while the workers ran.


LATE_INTERVALS, LATE_SECONDS = 15, 30.0
"""A gap counts only above the larger of the two limits. A busy machine delays samples, and a probe pauses for up to 10
intervals if sampling is expensive."""

SILENT_SHARE = 0.05
"""Maximum gap as a share of the workers' run time. A longer gap may hide the peak."""


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
    gap: Span
    """The largest gap between samples, including launch and end of the workers."""
    watched_seconds: float
    """From the first of these moments to the last."""
    num_readings: int
    """Readings of used memory."""
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
    """Return None if used memory was never read. `edges_ns` are launch and end of the node's workers."""
    timed = timed_use(found)
    if not timed:
        return None
    # For host memory, a reading without a figure is no gap: the probe ran, but the worker had no process.
    watched_ns = found.times_ns if is_host else [t_ns for t_ns, _ in timed]
    moments_ns = sorted((*watched_ns, *edges_ns))
    gaps_ns = list(map(sub, moments_ns[1:], moments_ns)) or [0]
    gap = gaps_ns.index(max(gaps_ns))
    peak_ns, peak = max(timed, key=lambda each: each[1].used_bytes or 0)  # the first of several
    utilisations = [reading.utilisation_percent or 0 for _, reading in timed]
    totals = (reading.total_bytes for reading in (peak, *(reading for _, reading in timed)))
    uses = [MemoryUse(t_ns, reading.used_bytes or 0, reading.total_bytes) for t_ns, reading in timed]
    wrong = (use for use in uses if use.used < 0 or (use.total is not None and use.used > use.total))
    return DeviceSamples(
        card=card,
        boot_id=started.clock.boot_id,
        probe=started.probe,
        interval_seconds=started.interval_seconds,
        gap=Span(moments_ns[gap], moments_ns[gap] + gaps_ns[gap]),
        watched_seconds=(moments_ns[-1] - moments_ns[0]) / SECOND_NS,
        num_readings=len(timed),
        peak_ns=peak_ns,
        peak=peak,
        total_bytes=next((total for total in totals if total is not None), None),
        implausible=next(wrong, None),
        has_bad_utilisation=not 0 <= min(utilisations) <= max(utilisations) <= 100,
        baseline=found.baseline,
    )


def timed_use(found: CardReadings) -> list[tuple[int, Reading]]:
    """Return the readings that have used memory, each with its time."""
    pairs = zip(found.times_ns, found.readings, strict=True)
    return [(t_ns, reading) for t_ns, reading in pairs if reading.used_bytes is not None]


def overdrawn_pool(cards: Iterable[CardReadings]) -> MemoryUse | None:
    """Return where slots that share a node's memory, of which each reports the total, together use more than that."""
    used: Counter[int] = Counter()
    for card in cards:
        for t_ns, reading in timed_use(card):
            used[t_ns] += reading.used_bytes or 0
            if reading.total_bytes is not None and used[t_ns] > reading.total_bytes:
                return MemoryUse(t_ns, used[t_ns], reading.total_bytes)
    return None


class NotRead(msgspec.Struct, frozen=True):
    """Why used memory was not read at one moment: of one card, or of all (`device_id` is empty)."""

    t_ns: int
    device_id: str
    why: Message | str


def reasons_in(events: Sequence[AnyEvent]) -> Iterator[NotRead]:
    """Yield the reasons in the order of the file. Where used memory has none of its own, those of other figures
    count."""
    for event in events:
        if isinstance(event, Sampled):
            for reading in event.readings:
                if reading.used_bytes is None:
                    missing = reading.missing
                    texts = [missing["used_bytes"]] if "used_bytes" in missing else missing.values()
                    yield from (NotRead(event.t_ns, reading.device_id, missing_words(text)) for text in texts)
        elif isinstance(event, ProbeFailed):
            yield NotRead(event.t_ns, "", why_failed(event))
        elif isinstance(event, SampleMissed):
            yield NotRead(event.t_ns, "", event.reason)


def why_failed(failed: ProbeFailed) -> Message | str:
    return failed.message or failed.reason


# Series: one figure of one card over the measured window on its node.


FIGURES_OVER_TIME = (
    "utilisation_percent",
    "power_watts",
    "temperature_celsius",
    "energy_joules",
    "clock_mhz",
    "throttle_reasons",
)


class Series(msgspec.Struct, frozen=True):
    """At least one reading is inside the window. Of throttle reasons, the number is 1 while there is one, else 0."""

    card: DeviceKey
    """Of a figure that the chips of a board share: the node, and the board in place of a device."""
    num_inside: int
    """Readings inside the window. `mean`, `low` and `high` are theirs."""
    mean: float
    low: float
    high: float
    lowest: float
    """Of all readings, also outside the window."""
    largest_gap_seconds: float
    """The largest gap that overlaps the window, including at its ends."""
    falls: bool
    """A reading is below the one before it."""
    joules: float = 0.0
    """Energy over the window, if the figure is an energy counter or power."""
    reasons: dict[str, int] = {}
    """Throttle reason -> number of readings inside the window that have it."""
    is_of_board: bool = False


def card_series(card: DeviceKey, read: CardReadings, figure: str, window: Span) -> Series | None:
    """Reduce one figure, a field of Reading. Return None if it was not read inside the window."""
    times_ns: Sequence[int] = read.times_ns
    values: Sequence[Any] = [getattr(reading, figure) for reading in read.readings]
    if None in values:
        known = [index for index, value in enumerate(values) if value is not None]
        times_ns, values = [times_ns[index] for index in known], [values[index] for index in known]
    if not all(map(lt, times_ns, times_ns[1:])):
        times_ns, values = zip(*sorted(zip(times_ns, values, strict=True)), strict=True)
    inside = slice(bisect_left(times_ns, window.began_ns), bisect_right(times_ns, window.ended_ns))
    if not values[inside]:
        return None
    reasons: Counter[str] = Counter()
    if figure == "throttle_reasons":
        reasons.update(reason for words in values[inside] for reason in words)
        values = [float(bool(words)) for words in values]
    joules = 0.0
    if figure == "energy_joules":
        joules = value_at(times_ns, values, window.ended_ns) - value_at(times_ns, values, window.began_ns)
    elif figure == "power_watts":
        joules = integral(times_ns, values, window)
    return Series(
        card=card,
        num_inside=len(values[inside]),
        mean=sum(values[inside]) / len(values[inside]),
        low=min(values[inside]),
        high=max(values[inside]),
        lowest=min(values),
        largest_gap_seconds=largest_gap_ns(times_ns, window) / SECOND_NS,
        falls=any(map(gt, values, values[1:])),
        joules=joules,
        reasons=dict(reasons),
    )


def largest_gap_ns(times_ns: Sequence[int], window: Span) -> int:
    """Return the largest gap that overlaps the window. Where nothing was read beyond an end, the gap ends there."""
    after_start, at_end = bisect_right(times_ns, window.began_ns), bisect_left(times_ns, window.ended_ns)
    before = times_ns[after_start - 1] if after_start else window.began_ns
    after = times_ns[at_end] if at_end < len(times_ns) else window.ended_ns
    moments = (before, *times_ns[after_start:at_end], after)
    return max(later - earlier for earlier, later in pairwise(moments))


def value_at(times_ns: Sequence[int], values: Sequence[float], t_ns: int) -> float:
    """Interpolate linearly between neighbours, and extrapolate outside the readings."""
    if len(times_ns) == 1:
        return float(values[0])
    index = min(max(1, bisect_left(times_ns, t_ns)), len(times_ns) - 1)
    (t0, t1), (v0, v1) = times_ns[index - 1 : index + 1], values[index - 1 : index + 1]
    return float(v0 + (v1 - v0) * (t_ns - t0) / (t1 - t0)) if t1 > t0 else float(v1)


def integral(times_ns: Sequence[int], values: Sequence[float], window: Span) -> float:
    """Integrate over seconds by the trapezoidal rule. The value at an edge of the window is interpolated, or that of
    the nearest sample."""
    first, last = times_ns[0], times_ns[-1]
    edges = [value_at(times_ns, values, min(max(t_ns, first), last)) for t_ns in (window.began_ns, window.ended_ns)]
    between = slice(bisect_right(times_ns, window.began_ns), bisect_left(times_ns, window.ended_ns))
    inside = dict(zip(times_ns[between], values[between], strict=True))  # the last of several at one moment
    points = {window.began_ns: edges[0], **inside, window.ended_ns: edges[1]}
    total: float = sum((v0 + v1) / 2 * (t1 - t0) / SECOND_NS for (t0, v0), (t1, v1) in pairwise(points.items()))
    return total


# Power of a card while a row was timed, and the energy of one call. docs/metrics.md, Rows.


MIN_SAMPLES = 20

MAX_PERIODS = 3
"""A gap of more periods between samples is one."""

MIN_BUSY = 0.9
"""Share of the time that the samples of the row take; else the card did other things as well."""


class RowPower(msgspec.Struct, frozen=True):
    """Over the window of one row."""

    watts: float | None = None
    joules: float | None = None
    """By the energy counter if there is one, else by the power samples."""
    problem: Literal["", "not_read", "few_samples", "gap"] = "not_read"


def row_power(card: DeviceKey, read: CardReadings, window: Span, period_seconds: float) -> RowPower:
    power = card_series(card, read, "power_watts", window)
    if power is None:
        return RowPower()
    if power.num_inside < MIN_SAMPLES:
        return RowPower(problem="few_samples")
    if power.largest_gap_seconds > MAX_PERIODS * period_seconds:
        return RowPower(problem="gap")
    energy = card_series(card, read, "energy_joules", window) or power
    return RowPower(power.mean, energy.joules, "")


def with_power(row: MeasuredRow, card: DeviceKey, powers: Mapping[tuple[DeviceKey, Span], RowPower]) -> MeasuredRow:
    """Add power and energy, or why there are none, to a row that was timed."""
    if row.window is None or row.mean is None:
        return row
    if row.busy < MIN_BUSY:
        return msgspec.structs.replace(row, power_problem="not_alone")
    found = powers.get((card, row.window), RowPower())
    if found.joules is None:
        return msgspec.structs.replace(row, power_problem=found.problem)
    return msgspec.structs.replace(row, power=found.watts, energy=found.joules / row.total_calls)


# NodeRecord.


class NodeRecord(msgspec.Struct, frozen=True):
    starts: tuple[ProbeStarted, ...]
    """A valid record has one. Without one, nothing else is known but failures and reasons."""
    ended: ProbeEnded | None
    failures: tuple[ProbeFailed, ...]
    torn: bool
    read_ids: frozenset[str]
    """Every device that was read, of the job or not."""
    cpu: tuple[tuple[int, CpuUse], ...]
    """The first sample of the host's cores and the last, each with its timestamp."""
    last_reasons: dict[str, tuple[int, NotRead]]
    """Device id (empty for all) -> the last reason why it was not read, with its place among the reasons."""
    memory: dict[DeviceKey, DeviceSamples] = {}
    """The node's cards in the job whose used memory was read."""
    overdrawn: MemoryUse | None = None
    """Where the slots of a host together use more than it has."""
    series: dict[str, dict[DeviceKey, Series]] = {}
    """Figure -> card -> its series. Empty without a measured window on this node."""
    row_powers: dict[tuple[DeviceKey, Span], RowPower] = {}
    """Card and window of a timed row -> its power then."""
    silences: dict[str, Message | str] = {}
    """Device id -> the last reason inside the largest gap of a card that was silent for too long."""

    @property
    def started(self) -> ProbeStarted | None:
        return self.starts[0] if self.starts else None


class ExpectedSamples(msgspec.Struct, frozen=True):
    """What is known of the nodes before their samples are read."""

    device_ids: Mapping[int, Sequence[str]]
    """Node index -> its cards in the job."""
    edges_ns: Mapping[int, Sequence[int]]
    """Node index -> launch and end of its workers, on its own clock."""
    windows: Mapping[tuple[int, str], Span]
    """Node index and boot id -> the measured window there."""
    row_windows: Mapping[DeviceKey, Sequence[Span]]
    is_host: bool
    """The slots of a node share its memory."""


def read_nodes(
    job: Job,
    parent: EventFile,
    files: Iterable[EventFile],
    windows: Mapping[tuple[int, str], Span],
    row_windows: Mapping[DeviceKey, Sequence[Span]],
) -> tuple[NodeRecord, ...]:
    """Reduce each file to what the metrics need before the next one is read. `windows` has the measured window by node
    index and boot id, `row_windows` those of timed rows by card."""
    device_ids: dict[int, list[str]] = {}
    for node in job.nodes:
        device_ids.setdefault(node.index, []).extend(device.id for device in node.devices)
    edges_ns: dict[int, list[int]] = {}
    for event in of_type(parent.events, WorkersLaunched) + of_type(parent.events, WorkersEnded):
        edges_ns.setdefault(event.node_index, []).append(event.node_t_ns)
    expected = ExpectedSamples(device_ids, edges_ns, windows, row_windows, job.memory_scope == "host")
    return tuple(read_node(file, expected) for file in files)


def read_node(file: EventFile, expected: ExpectedSamples) -> NodeRecord:
    events = EventsByType(file.events)
    read, reasons = readings_by_card(events[Sampled]), list(reasons_in(file.events))
    cpu = [(sample.t_ns, sample.cpu) for sample in events[Sampled] if sample.cpu is not None]
    record = NodeRecord(
        starts=tuple(events[ProbeStarted]),
        ended=next(iter(events[ProbeEnded]), None),
        failures=tuple(events[ProbeFailed]),
        torn=file.torn,
        read_ids=frozenset(read),
        cpu=(*cpu[:1], *cpu[-1:]),
        last_reasons={reason.device_id: (place, reason) for place, reason in enumerate(reasons)},
    )
    started = record.started
    if started is None:
        return record
    node = started.node_index
    ids = sorted(expected.device_ids.get(node, ()))
    cards = {(node, device_id): read[device_id] for device_id in ids if device_id in read}
    edges_ns, window = expected.edges_ns.get(node, ()), expected.windows.get((node, started.clock.boot_id))
    memory: dict[DeviceKey, DeviceSamples] = {}
    series: dict[str, dict[DeviceKey, Series]] = {}
    powers: dict[tuple[DeviceKey, Span], RowPower] = {}
    silences: dict[str, Message | str] = {}
    for card, found in cards.items():
        samples = card_samples(card, found, started, edges_ns, is_host=expected.is_host)
        if samples is not None:
            memory[card] = samples
            if samples.was_silent:
                known = [reason for reason in reasons if reason.device_id in ("", card[1])]
                inside = [each.why for each in known if samples.gap.began_ns <= each.t_ns <= samples.gap.ended_ns]
                if inside:
                    silences[card[1]] = inside[-1]
        if window is not None:
            of_card = {figure: card_series(card, found, figure, window) for figure in FIGURES_OVER_TIME}
            for figure, one in of_card.items():
                if one is not None:
                    series.setdefault(figure, {})[card] = one
        for span in expected.row_windows.get(card, ()):
            powers[card, span] = row_power(card, found, span, started.interval_seconds)
    return msgspec.structs.replace(
        record,
        memory=memory,
        overdrawn=overdrawn_pool(cards.values()) if expected.is_host else None,
        series=series,
        row_powers=powers,
        silences=silences,
    )


# All nodes.


def device_samples(job: Job, parent: EventFile, nodes: Sequence[NodeRecord]) -> dict[DeviceKey, DeviceSamples] | Absent:
    """Return the samples of all cards of the job. Absent if a card or a long period is missing: a partial maximum would
    be too low."""
    ended = of_type(parent.events, WorkersEnded)
    for event in ended:  # a probe whose failure could not be written among its samples
        if event.probe_failure is not None:
            return absent("invalid_telemetry", "samples.probe_died", node=event.node_index, why=event.probe_failure)
    found = {card: device for node in nodes for card, device in node.memory.items()}
    missing = sorted({(node.index, device.id) for node in job.nodes for device in node.devices} - set(found))
    if missing:
        return nothing_read(missing, nodes)
    return died_probe(ended, nodes) or long_silence(found, nodes) or found


def nothing_read(missing: Sequence[DeviceKey], nodes: Sequence[NodeRecord]) -> Absent:
    """Name the cards of the first node that lacks some, with the last reason of the last node that has one. A probe
    that failed before it recorded its node is included, because it may belong to these cards."""
    by_node: dict[int, list[str]] = {}
    for node_index, device_id in missing:
        by_node.setdefault(node_index, []).append(device_id)
    reasons: list[Message | str] = []
    for node in nodes:
        ids = {device_id for started in node.starts for device_id in by_node.get(started.node_index, ())}
        known = [node.last_reasons[each] for each in ("", *ids) if each in node.last_reasons]
        if known and (ids or not node.starts):
            reasons.append(max(known, key=lambda placed: placed[0])[1].why)
    first = missing[0][0]
    cards = message("name.of_node", what=named("device", by_node[first]), node=first)
    return absent_because("not_measured", "samples.none", reasons, cards=cards)


def died_probe(ended: Sequence[WorkersEnded], nodes: Sequence[NodeRecord]) -> Absent | None:
    """Return why a probe failed while workers were running. A failure after their end loses no samples."""
    for node in nodes:
        for started in node.starts[:1]:
            ends_ns = [event.node_t_ns for event in ended if node.failures and event.node_index == started.node_index]
            for failed in node.failures:
                if not ends_ns or failed.t_ns < max(ends_ns):
                    why = why_failed(failed)
                    return absent("invalid_telemetry", "samples.probe_died", node=started.node_index, why=why)
    return None


def long_silence(devices: Mapping[DeviceKey, DeviceSamples], nodes: Sequence[NodeRecord]) -> Absent | None:
    for card, device in devices.items():
        if device.was_silent:
            known = [node.silences[card[1]] for node in nodes if card in node.memory and card[1] in node.silences]
            spans = {"part": f"{device.gap.seconds:.1f}", "whole": f"{device.watched_seconds:.1f}"}
            return absent_because("invalid_telemetry", "samples.silent", known, card=card_name(card), **spans)
    return None


def absent_because(reason: Reason, code: str, reasons: Sequence[Message | str], /, **params: Any) -> Absent:
    """Return the absence with the last of the reasons, if there are any."""
    return absent(reason, f"{code}_because", why=reasons[-1], **params) if reasons else absent(reason, code, **params)


def series_of(job: Job, nodes: Sequence[NodeRecord], figure: str) -> Mapping[DeviceKey, Series] | Absent:
    """Return one figure (a field of Reading) of all cards of the job. What the chips of a board share is there once for
    the board."""
    found = {card: one for node in nodes for card, one in node.series.get(figure, {}).items()}
    started = [node.started for node in nodes if node.started is not None]
    shared_on = {each.node_index for each in started if figure in each.board_figures}
    wanted = [(node.index, device) for node in job.nodes for device in node.devices]
    missing = [(node, device.id) for node, device in wanted if (node, device.id) not in found]
    if missing:
        return absent("not_measured", "power.not_read", figure=figure, card=card_name(missing[0]))
    by_owner: dict[DeviceKey, Series] = {}
    for node, device in wanted:
        one = found[node, device.id]
        if node in shared_on and device.board:
            one = msgspec.structs.replace(one, card=(node, device.board), is_of_board=True)
        by_owner.setdefault(one.card, one)
    return by_owner
