"""One node's samples, reduced: NodeRecord, memory, series, power of rows."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter, gt, lt, sub
from typing import TYPE_CHECKING, Any, Literal

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
from flagperf.spec.job import Job
from flagperf.units import SECOND_NS

if TYPE_CHECKING:
    from flagperf.metrics.rows import MeasuredRow

# CardReadings: the readings of one card. They exist only while the file of its node is read.


class CardReadings(msgspec.Struct):
    """`times_ns` and `readings` are those while the workers ran, in the order of the file. `baseline` is the last one
    before they started."""

    times_ns: list[int] = []
    readings: list[Reading] = []
    baseline: Reading | None = None


def readings_by_card(samples: Iterable[Sampled]) -> dict[str, CardReadings]:
    """Device id -> its readings, for every card that was read."""
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


# DeviceSamples: the memory of one card while the workers ran, reduced while the file of its node is read.


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


# Series: one figure of one card over the measured window on its node, reduced while the node's file is read.


NUMBERS = ("utilisation_percent", "power_watts", "temperature_celsius", "energy_joules", "clock_mhz")

THROTTLING = "throttle_reasons"


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


NodeWindows = Mapping[tuple[int, str], Span]
"""(Node index, boot id) -> from the earliest start of a rank's window to the latest end."""


def card_series(card: DeviceKey, found: CardReadings, window: Span) -> Iterator[tuple[str, Series]]:
    """Figure (a field of Reading) -> its series, for those that were read inside the window."""
    for figure in (*NUMBERS, THROTTLING):
        curve = _curve(found.times_ns, list(map(attrgetter(figure), found.readings)), window)
        if curve.inside:
            yield (
                figure,
                _throttling(card, curve) if figure == THROTTLING else _series(card, curve, _ENERGY.get(figure)),
            )


def _throttling(card: DeviceKey, curve: _Curve) -> Series:
    reasons = Counter(reason for words in curve.inside for reason in words)
    numbers = msgspec.structs.replace(curve, values=[float(bool(words)) for words in curve.values])
    return msgspec.structs.replace(_series(card, numbers), reasons=dict(reasons))


def _series(card: DeviceKey, curve: _Curve, energy: Callable[[_Curve], float] | None = None) -> Series:
    inside, values = curve.inside, curve.values
    return Series(
        card=card,
        num_inside=len(inside),
        mean=sum(inside) / len(inside),
        low=min(inside),
        high=max(inside),
        lowest=min(values),
        largest_gap_seconds=curve.place.largest_gap_seconds,
        falls=any(map(gt, values, values[1:])),
        joules=energy(curve) if energy else 0.0,
    )


class _Place(msgspec.Struct, frozen=True):
    """Where the window is among the times of readings."""

    inside: slice
    between: slice
    """Without readings at the very start and end of the window."""
    largest_gap_seconds: float


class _Curve(msgspec.Struct, frozen=True):
    """Times that increase, and the values then. Readings outside the window are kept to interpolate its edges."""

    times_ns: Sequence[int]
    values: Sequence[Any]
    window: Span
    place: _Place

    @property
    def inside(self) -> Sequence[Any]:
        return self.values[self.place.inside]

    def at(self, t_ns: int) -> float:
        """Linear interpolation between neighbours; linear extrapolation outside the readings."""
        if len(self.times_ns) == 1:
            return float(self.values[0])
        index = min(max(1, bisect_left(self.times_ns, t_ns)), len(self.times_ns) - 1)
        (t0, t1), (v0, v1) = self.times_ns[index - 1 : index + 1], self.values[index - 1 : index + 1]
        return float(v0 + (v1 - v0) * (t_ns - t0) / (t1 - t0)) if t1 > t0 else float(v1)


def _curve(times_ns: Sequence[int], values: Sequence[Any], window: Span) -> _Curve:
    """Of the readings that have a value."""
    if None in values:
        known = [(t_ns, value) for t_ns, value in zip(times_ns, values, strict=True) if value is not None]
        times_ns, values = [t_ns for t_ns, _ in known], [value for _, value in known]
    if not all(map(lt, times_ns, times_ns[1:])):
        times_ns, values = zip(*sorted(zip(times_ns, values, strict=True)), strict=True)
    return _Curve(times_ns, values, window, _place(tuple(times_ns), window))


@functools.lru_cache(maxsize=16)
def _place(times_ns: tuple[int, ...], window: Span) -> _Place:
    """Cached because the figures of a node's cards are read at the same times."""
    at_start, after_start = bisect_left(times_ns, window.began_ns), bisect_right(times_ns, window.began_ns)
    at_end, after_end = bisect_left(times_ns, window.ended_ns), bisect_right(times_ns, window.ended_ns)
    before = times_ns[:after_start][-1:] or (window.began_ns,)
    after = times_ns[at_end:][:1] or (window.ended_ns,)
    moments = (*before, *times_ns[after_start:at_end], *after)
    return _Place(
        inside=slice(at_start, after_end),
        between=slice(after_start, at_end),
        largest_gap_seconds=max(map(sub, moments[1:], moments)) / SECOND_NS,
    )


def _counted(curve: _Curve) -> float:
    return curve.at(curve.window.ended_ns) - curve.at(curve.window.began_ns)


def _integrated(curve: _Curve) -> float:
    """Trapezoidal rule. Power at the edges of the window is interpolated, or taken from the nearest sample."""
    window, first, last = curve.window, curve.times_ns[0], curve.times_ns[-1]
    start, end = (curve.at(min(max(t_ns, first), last)) for t_ns in (window.began_ns, window.ended_ns))
    between = dict(zip(curve.times_ns[curve.place.between], curve.values[curve.place.between], strict=True))
    points = {window.began_ns: start, **between, window.ended_ns: end}  # the last of several at one moment
    pairs = pairwise(points.items())
    total: float = sum((v0 + v1) / 2 * (t1 - t0) / SECOND_NS for (t0, v0), (t1, v1) in pairs)
    return total


_ENERGY: dict[str, Callable[[_Curve], float]] = {"energy_joules": _counted, "power_watts": _integrated}

# Power of a card while a row was timed, and the energy of one call. docs/metrics.md, Rows.


MIN_SAMPLES = 20

MAX_PERIODS = 3
"""A gap of more periods between samples is one."""

MIN_BUSY = 0.9
"""Share of the time that the samples of the row take; else the card did other things as well."""

Problem = Literal["", "not_read", "few_samples", "gap", "not_alone"]


class RowPower(msgspec.Struct, frozen=True):
    """Over the window of one row."""

    watts: float | None = None
    joules: float | None = None
    """By the energy counter if there is one, else by the power samples."""
    problem: Problem = "not_read"


RowWindows = Mapping[DeviceKey, Sequence[Span]]

RowPowers = Mapping[tuple[DeviceKey, Span], RowPower]


def row_powers(card: DeviceKey, read: CardReadings, windows: RowWindows, period_seconds: float) -> RowPowers:
    return {(card, window): _row_power(card, read, window, period_seconds) for window in windows.get(card, ())}


def _row_power(card: DeviceKey, read: CardReadings, window: Span, period_seconds: float) -> RowPower:
    figures = dict(card_series(card, read, window))
    power = figures.get("power_watts")
    energy = figures.get("energy_joules", power)
    if power is None or energy is None:
        return RowPower()
    if power.num_inside < MIN_SAMPLES:
        return RowPower(problem="few_samples")
    if power.largest_gap_seconds > MAX_PERIODS * period_seconds:
        return RowPower(problem="gap")
    return RowPower(power.mean, energy.joules, "")


def with_power(row: MeasuredRow, card: DeviceKey, powers: RowPowers) -> MeasuredRow:
    """A row that was not timed, or has no figure, stays as it is."""
    if row.window is None or row.mean is None:
        return row
    if row.busy < MIN_BUSY:
        return msgspec.structs.replace(row, power_problem="not_alone")
    found = powers.get((card, row.window), RowPower())
    if found.joules is None:
        return msgspec.structs.replace(row, power_problem=found.problem)
    return msgspec.structs.replace(row, power=found.watts, energy=found.joules / row.total_calls)


# NodeRecord: what is kept of a node's samples. Also checks that all cards of a job were sampled.


class NodeRecord(msgspec.Struct, frozen=True):
    starts: tuple[ProbeStarted, ...]
    """A valid record has one. Without one, nothing else is known but failures and reasons."""
    ended: ProbeEnded | None
    failures: tuple[ProbeFailed, ...]
    torn: bool
    read_ids: frozenset[str]
    """Every device that was read, of the job or not."""
    memory: dict[DeviceKey, DeviceSamples]
    """The node's cards in the job whose used memory was read."""
    overdrawn: MemoryUse | None
    """Where the slots of a host together use more than it has."""
    series: dict[str, dict[DeviceKey, Series]]
    """Figure -> card -> its series. Empty without a measured window on this node."""
    row_powers: RowPowers
    """Card and window of a timed row -> its power then."""
    cpu: tuple[tuple[int, CpuUse], ...]
    """The first sample of the host's cores and the last, each with its timestamp."""
    last_reasons: dict[str, tuple[int, NotRead]]
    """Device id (empty for all) -> the last reason why it was not read, with its place among the reasons."""
    silences: dict[str, Message | str]
    """Device id -> the last reason inside the largest gap of a card that was silent for too long."""

    @property
    def started(self) -> ProbeStarted | None:
        return self.starts[0] if self.starts else None


class _Expected(msgspec.Struct, frozen=True):
    """What is known of the nodes before their samples are read."""

    device_ids: Mapping[int, Sequence[str]]
    """Node index -> its cards in the job."""
    edges_ns: Mapping[int, Sequence[int]]
    """Node index -> launch and end of its workers, on its own clock."""
    windows: NodeWindows
    row_windows: RowWindows
    is_host: bool
    """The slots of a node share its memory."""


def node_records(
    job: Job, parent: EventFile, files: Iterable[EventFile], windows: NodeWindows, row_windows: RowWindows
) -> tuple[NodeRecord, ...]:
    """Each file is reduced to what the metrics need before the next one is read."""
    device_ids: dict[int, list[str]] = {}
    for node in job.nodes:
        device_ids.setdefault(node.index, []).extend(device.id for device in node.devices)
    edges_ns: dict[int, list[int]] = {}
    for event in of_type(parent.events, WorkersLaunched) + of_type(parent.events, WorkersEnded):
        edges_ns.setdefault(event.node_index, []).append(event.node_t_ns)
    expected = _Expected(device_ids, edges_ns, windows, row_windows, job.memory_scope == "host")
    return tuple(_node_record(file, expected) for file in files)


def _node_record(file: EventFile, expected: _Expected) -> NodeRecord:
    events = EventsByType(file.events)
    started = next(iter(events[ProbeStarted]), None)
    read = readings_by_card(events[Sampled])
    own = _of_the_job(read, started, expected) if started else {}
    memory = _memory(own, started, expected) if started else {}
    reasons = list(reasons_in(file.events))
    cpu = [(sample.t_ns, sample.cpu) for sample in events[Sampled] if sample.cpu is not None]
    return NodeRecord(
        starts=tuple(events[ProbeStarted]),
        ended=next(iter(events[ProbeEnded]), None),
        failures=tuple(events[ProbeFailed]),
        torn=file.torn,
        read_ids=frozenset(read),
        memory=memory,
        overdrawn=overdrawn_pool(list(own.values())) if expected.is_host else None,
        series=_node_series(own, started, expected) if started else {},
        row_powers=_row_powers(own, started, expected) if started else {},
        cpu=(*cpu[:1], *cpu[-1:]),
        last_reasons={reason.device_id: (place, reason) for place, reason in enumerate(reasons)},
        silences=_silences(memory.values(), reasons),
    )


Cards = Mapping[DeviceKey, CardReadings]


def _of_the_job(
    read: Mapping[str, CardReadings], started: ProbeStarted, expected: _Expected
) -> dict[DeviceKey, CardReadings]:
    ids = sorted(expected.device_ids.get(started.node_index, ()))
    return {(started.node_index, device_id): read[device_id] for device_id in ids if device_id in read}


def _memory(cards: Cards, started: ProbeStarted, expected: _Expected) -> dict[DeviceKey, DeviceSamples]:
    edges_ns = expected.edges_ns.get(started.node_index, ())
    found = (card_samples(card, read, started, edges_ns, is_host=expected.is_host) for card, read in cards.items())
    return {sampled.card: sampled for sampled in found if sampled is not None}


def _node_series(cards: Cards, started: ProbeStarted, expected: _Expected) -> dict[str, dict[DeviceKey, Series]]:
    window = expected.windows.get((started.node_index, started.clock.boot_id))
    found: dict[str, dict[DeviceKey, Series]] = {}
    if window is None:
        return found
    for card, read in cards.items():
        for figure, one in card_series(card, read, window):
            found.setdefault(figure, {})[card] = one
    return found


def _row_powers(cards: Cards, started: ProbeStarted, expected: _Expected) -> RowPowers:
    found: dict[tuple[DeviceKey, Span], RowPower] = {}
    for card, read in cards.items():
        found |= row_powers(card, read, expected.row_windows, started.interval_seconds)
    return found


def _silences(devices: Iterable[DeviceSamples], reasons: Sequence[NotRead]) -> dict[str, Message | str]:
    return {
        device.card[1]: reason.why
        for device in devices
        if device.was_silent
        for reason in reasons
        if reason.device_id in ("", device.card[1]) and device.gap.began_ns <= reason.t_ns <= device.gap.ended_ns
    }


# --- all nodes ------------------------------------------------------------------------------------------------------


def device_samples(job: Job, parent: EventFile, nodes: Sequence[NodeRecord]) -> dict[DeviceKey, DeviceSamples] | Absent:
    """The samples of all cards of the job. Absent if a card or a long period is missing: a partial maximum would be too
    low."""
    ended = of_type(parent.events, WorkersEnded)
    for event in ended:  # a probe whose failure could not be written among its samples
        if event.probe_failure is not None:
            return absent("invalid_telemetry", "samples.probe_died", node=event.node_index, why=event.probe_failure)
    found = {card: device for node in nodes for card, device in node.memory.items()}
    missing = sorted({(node.index, device.id) for node in job.nodes for device in node.devices} - set(found))
    if missing:
        return _nothing(missing, nodes)
    return _died(ended, nodes) or _silent(found, nodes) or found


def series_of(job: Job, nodes: Sequence[NodeRecord], figure: str) -> Mapping[DeviceKey, Series] | Absent:
    """One figure (a field of Reading) of all cards of the job. What the chips of a board share is there once for the
    board."""
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


def _died(ended: Sequence[WorkersEnded], nodes: Sequence[NodeRecord]) -> Absent | None:
    """A probe that failed while workers were running. A failure after their end loses no samples."""
    for node in nodes:
        for started in node.starts[:1]:
            ends_ns = [event.node_t_ns for event in ended if node.failures and event.node_index == started.node_index]
            for failed in node.failures:
                if not ends_ns or failed.t_ns < max(ends_ns):
                    why = why_failed(failed)
                    return absent("invalid_telemetry", "samples.probe_died", node=started.node_index, why=why)
    return None


def _silent(devices: Mapping[DeviceKey, DeviceSamples], nodes: Sequence[NodeRecord]) -> Absent | None:
    for card, device in devices.items():
        if device.was_silent:
            known = [node.silences[card[1]] for node in nodes if card in node.memory and card[1] in node.silences]
            spans = {"part": f"{device.gap.seconds:.1f}", "whole": f"{device.watched_seconds:.1f}"}
            return _because("invalid_telemetry", "samples.silent", known, card=card_name(card), **spans)
    return None


def _nothing(missing: Sequence[DeviceKey], nodes: Sequence[NodeRecord]) -> Absent:
    by_node: dict[int, list[str]] = {}
    for node_index, device_id in missing:
        by_node.setdefault(node_index, []).append(device_id)
    first = missing[0][0]
    cards = message("name.of_node", what=named("device", by_node[first]), node=first)
    return _because("not_measured", "samples.none", _why_missing(by_node, nodes), cards=cards)


def _why_missing(missing: Mapping[int, Sequence[str]], nodes: Sequence[NodeRecord]) -> list[Message | str]:
    """The last reason of each node. A probe that failed before it recorded its node is included, because it may belong
    to these cards."""
    found: list[Message | str] = []
    for node in nodes:
        ids = {device_id for started in node.starts for device_id in missing.get(started.node_index, ())}
        if ids or not node.starts:
            known = [node.last_reasons[each] for each in ("", *ids) if each in node.last_reasons]
            found += [max(known, key=lambda placed: placed[0])[1].why] if known else []
    return found


def _because(reason: Reason, code: str, reasons: Sequence[Message | str], /, **params: Any) -> Absent:
    """Includes the last of the reasons, if there are any."""
    return absent(reason, f"{code}_because", why=reasons[-1], **params) if reasons else absent(reason, code, **params)
