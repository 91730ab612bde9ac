"""Series: one figure of one card over time, and the measured window on that card's node."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from flagperf.events import EventFile, Sampled
from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.ranks import RankRecord, of
from flagperf.metrics.samples import DeviceKey, card_name, probe_files
from flagperf.metrics.spans import Loop, Span
from flagperf.spec import Job
from flagperf.units import SECOND_NS


class Series(msgspec.Struct, frozen=True):
    """Timestamps (node's clock) and values of one figure of one card. At least one reading."""

    card: DeviceKey
    """Of a figure that the chips of a board share: the node, and the board in place of a device."""
    times_ns: tuple[int, ...]
    values: tuple[Any, ...]
    window: Span
    is_of_board: bool = False

    @property
    def inside(self) -> Sequence[Any]:
        """Values sampled inside the window."""
        first = bisect_left(self.times_ns, self.window.began_ns)
        return self.values[first : bisect_right(self.times_ns, self.window.ended_ns)]

    @property
    def largest_gap_seconds(self) -> float:
        """The largest gap that overlaps the window, including at its ends."""
        window = self.window
        moments = [t_ns for t_ns in self.times_ns if window.began_ns < t_ns < window.ended_ns]
        before = self.times_ns[: bisect_right(self.times_ns, window.began_ns)][-1:] or [window.began_ns]
        after = self.times_ns[bisect_left(self.times_ns, window.ended_ns) :][:1] or [window.ended_ns]
        gaps_ns: list[int] = [later - earlier for earlier, later in pairwise([*before, *moments, *after])]
        return max(gaps_ns) / SECOND_NS

    def at(self, t_ns: int) -> float:
        """Linear interpolation between neighbours; linear extrapolation outside the readings."""
        if len(self.times_ns) == 1:
            return float(self.values[0])
        index = min(max(1, bisect_left(self.times_ns, t_ns)), len(self.times_ns) - 1)
        (t0, t1), (v0, v1) = self.times_ns[index - 1 : index + 1], self.values[index - 1 : index + 1]
        return float(v0 + (v1 - v0) * (t_ns - t0) / (t1 - t0))


NodeWindows = Mapping[tuple[int, str], Span]
"""(Node index, boot id) -> from the earliest start of a rank's window to the latest end."""


def node_windows(ranks: Sequence[RankRecord], loop: Loop) -> NodeWindows:
    found: dict[tuple[int, str], Span] = {}
    for record, rank in zip(ranks, loop.ranks, strict=True):
        key, own = (record.started.node_index, record.started.clock.boot_id), rank.window
        other = found.get(key, own)
        found[key] = Span(min(own.began_ns, other.began_ns), max(own.ended_ns, other.ended_ns))
    return found


def series_of(
    job: Job, files: Sequence[EventFile], windows: NodeWindows, field: str
) -> Mapping[DeviceKey, Series] | Absent:
    """`field` of Reading for all cards of the job. Readings outside the window are kept to interpolate its edges. What
    the chips of a board share is there once for the board."""
    found: dict[DeviceKey, Series] = {}
    shared_on: set[int] = set()
    for started, file in probe_files(files):
        window = windows.get((started.node_index, started.clock.boot_id))
        if window is not None:
            found |= _node_series(started.node_index, of(file.events, Sampled), field, window)
        if field in started.board_figures:
            shared_on.add(started.node_index)
    wanted = [(node.index, device) for node in job.nodes for device in node.devices]
    missing = [(node, device.id) for node, device in wanted if (node, device.id) not in found]
    if missing:
        return absent("not_measured", "power.not_read", figure=field, card=card_name(missing[0]))
    by_owner: dict[DeviceKey, Series] = {}
    for node, device in wanted:
        one = found[node, device.id]
        if node in shared_on and device.board:
            one = msgspec.structs.replace(one, card=(node, device.board), is_of_board=True)
        by_owner.setdefault(one.card, one)
    return by_owner


def _node_series(node_index: int, samples: Sequence[Sampled], field: str, window: Span) -> dict[DeviceKey, Series]:
    read: dict[str, list[tuple[int, Any]]] = {}
    for sample in samples:
        for reading in sample.readings:
            value = getattr(reading, field)
            if value is not None and not sample.baseline:
                read.setdefault(reading.device_id, []).append((sample.t_ns, value))
    found: dict[DeviceKey, Series] = {}
    for device_id, pairs in read.items():
        times_ns, values = zip(*sorted(pairs), strict=True)
        one = Series((node_index, device_id), times_ns, values, window)
        if one.inside:
            found[one.card] = one
    return found
