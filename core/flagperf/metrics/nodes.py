"""NodeRecord: what is kept of a node's samples. Also checks that all cards of a job were sampled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from flagperf.events import (
    CpuUse,
    EventFile,
    ProbeEnded,
    ProbeFailed,
    ProbeStarted,
    Sampled,
    WorkersEnded,
    WorkersLaunched,
)
from flagperf.messages import Message, message
from flagperf.metrics.by_type import EventsByType, of
from flagperf.metrics.card_readings import CardReadings, readings_by_card
from flagperf.metrics.cards import DeviceKey, card_name
from flagperf.metrics.finding import Absent, absent, named
from flagperf.metrics.metric import Reason
from flagperf.metrics.row_power import RowPower, RowPowers, RowWindows, row_powers
from flagperf.metrics.samples import (
    DeviceSamples,
    MemoryUse,
    NotRead,
    card_samples,
    overdrawn_pool,
    reasons_in,
    why_failed,
)
from flagperf.metrics.series import NodeWindows, Series, card_series
from flagperf.metrics.span import Span
from flagperf.spec import Job


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
    for event in of(parent.events, WorkersLaunched) + of(parent.events, WorkersEnded):
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
        series=_series(own, started, expected) if started else {},
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


def _series(cards: Cards, started: ProbeStarted, expected: _Expected) -> dict[str, dict[DeviceKey, Series]]:
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
    ended = of(parent.events, WorkersEnded)
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
