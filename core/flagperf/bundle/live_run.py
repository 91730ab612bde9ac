"""Show what a run does now, from its growing files."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from flagperf.api import Device, Reading
from flagperf.bundle.liveness import is_held
from flagperf.bundle.paths import node_samples, rank_events
from flagperf.errors import BadInput
from flagperf.event_files import decode_events
from flagperf.events import (
    AnyEvent,
    EvaluationAdvanced,
    ProbeFailed,
    ProbeStarted,
    RowMeasured,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WorkerEnded,
    WorkerStarted,
)
from flagperf.spec.protocol import EvaluationProgress, Progress, RankPace
from flagperf.stats import median

_HEAD_BYTES = 1 << 16
"""The beginning of a file is always read: who writes it, and how many steps are planned."""


class GrowingFile:
    """Reads an event file that is still written: the whole lines that were added since the last call. Of more than
    `most_bytes` at once, if that is given, only the end: whoever comes late to a long run need not read all of it."""

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._offset = 0

    def new_events(self) -> tuple[AnyEvent, ...]:
        """Return the events that were added. A file that is damaged or cannot be read has none: whoever reads the
        record reports it, progress goes on."""
        if not self._path.is_file():  # reading from a pipe might never end
            return ()
        try:
            return decode_events(self._new_lines(), str(self._path)).events
        except (OSError, BadInput):
            return ()

    def _new_lines(self) -> list[bytes]:
        with self._path.open("rb") as file:
            added = file.seek(0, 2) - self._offset
            if self._most_bytes is None or added <= self._most_bytes:
                return self._whole_lines(file.seek(self._offset), file.read())
            head = b""
            if self._offset == 0:
                file.seek(0)
                head = file.read(_HEAD_BYTES)
                head = head[: head.rfind(b"\n") + 1]
            end = file.seek(self._offset + added - self._most_bytes)
            content = file.read()
            torn = content.find(b"\n") + 1
            return [*head.splitlines(keepends=True), *self._whole_lines(end + torn, content[torn:])]

    def _whole_lines(self, begin: int, content: bytes) -> list[bytes]:
        whole = content[: content.rfind(b"\n") + 1]
        self._offset = begin + len(whole)
        return whole.splitlines(keepends=True)


_SILENT_INTERVALS, _SILENT_SECONDS = 15, 10.0
"""Figures of cards that are older than both are not shown: the probe is silent."""


class CardFigures:
    """The last figures of a node's cards, for as long as its probe is not silent."""

    def __init__(self, samples: Path, devices: Sequence[Device], most_bytes: int | None = None) -> None:
        self._file = GrowingFile(samples, most_bytes)
        self._boards = {device.id: device.board for device in devices}
        self._is_power_of_board = False
        self._last: Sampled | None = None
        self._arrived_ns = 0
        self._silent_seconds = _SILENT_SECONDS

    def read(self) -> None:
        for event in self._file.new_events():
            if isinstance(event, Sampled) and not event.baseline:
                self._last, self._arrived_ns = event, time.monotonic_ns()
            elif isinstance(event, ProbeStarted):
                self._silent_seconds = max(_SILENT_SECONDS, _SILENT_INTERVALS * event.interval_seconds)
                self._is_power_of_board = "power_watts" in event.board_figures
            elif isinstance(event, ProbeFailed):
                self._last = None

    @property
    def used_bytes(self) -> int | None:
        """Return the memory of the card that uses most. Workers that have not begun, or have ended, have no figure."""
        return max((reading.used_bytes or 0 for reading in self.readings), default=0) or None

    @property
    def power_watts(self) -> float | None:
        """Return the power of all cards. A board counts once where its chips share a figure. None unless all were
        read."""
        watts: dict[str, float] = {}
        for reading in self.readings:
            if reading.power_watts is None:
                return None
            board = self._boards.get(reading.device_id) if self._is_power_of_board else None
            watts[board or reading.device_id] = reading.power_watts
        return sum(watts.values()) if watts else None

    @property
    def readings(self) -> Sequence[Reading]:
        """Return the last readings. Their age is counted from when they arrived: the probe may be on another machine,
        whose clock says nothing here."""
        is_silent = time.monotonic_ns() > self._arrived_ns + round(self._silent_seconds * 1e9)
        return () if self._last is None or is_silent else self._last.readings


_WINDOW_STEPS = 50
"""Throughput and ETA are over the last steps, so that a slow start does not distort them."""


class RankSteps:
    """Follows a rank: its phase, its last steps, and its evaluation under way."""

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        self._file = GrowingFile(path, most_bytes)
        self._steps: deque[StepFinished] = deque(maxlen=_WINDOW_STEPS)
        self.rows_ns: list[int] = []
        """When each measured row ended, for a case without steps."""
        self.evaluation: EvaluationProgress | None = None
        self.started: WorkerStarted | None = None
        self.ended: WorkerEnded | None = None
        self.planned_steps: int | None = None
        self.began_ns = 0
        """When the measured span began."""
        self.phase = "starting"
        self._measured_span = ""

    def new_events(self) -> tuple[AnyEvent, ...]:
        new = self._file.new_events()
        for event in new:
            if isinstance(event, StepFinished):
                self._steps.append(event)
            elif isinstance(event, RowMeasured):
                self.rows_ns.append(event.t_ns)
            elif isinstance(event, EvaluationAdvanced) and event.rows:
                seconds = (event.t_ns - event.began_ns) / 1e9
                self.evaluation = EvaluationProgress(event.rows, event.planned_rows, event.rows / seconds)
            elif isinstance(event, SpanBegan):
                self.planned_steps, self.began_ns = event.planned_steps, event.t_ns
                self.phase = self._measured_span = event.name
            elif isinstance(event, SpanEnded) and event.name == "evaluation":
                self.evaluation = None
            elif isinstance(event, SpanEnded) and event.name == self._measured_span:
                self.phase = "finishing"
            elif isinstance(event, WorkerStarted):
                self.started = event
            elif isinstance(event, WorkerEnded):
                self.ended = event
        return new

    @property
    def last(self) -> StepFinished | None:
        return self._steps[-1] if self._steps else None

    @property
    def num_done(self) -> int:
        """Return the number of the last step, or the count of rows for a case without steps."""
        return self.last.step if self.last else len(self.rows_ns)

    @property
    def numbers(self) -> list[int]:
        return [step.step for step in self._steps]

    def seconds_per_step(self, among: Collection[int] | None = None) -> float | None:
        """Return the mean over the last steps, or over those `among` them."""
        ends_ns = [step.t_ns for step in self._steps if among is None or step.step in among]
        return (ends_ns[-1] - ends_ns[0]) / 1e9 / (len(ends_ns) - 1) if len(ends_ns) > 1 else None

    def samples_per_second(self) -> float | None:
        """Return the speed over the last steps. It is 0 for a rank that leaves the counting to another one, with which
        it shares its samples."""
        if len(self._steps) < 2:
            return None
        samples = sum(step.samples for step in list(self._steps)[1:])
        return samples / ((self._steps[-1].t_ns - self._steps[0].t_ns) / 1e9)

    def seconds_left(self, since_last: float) -> float | None:
        """Return the longest time left: a case may stop once it reaches its target. `since_last` has passed since its
        last step or row, by whatever clock."""
        each, planned = self.seconds_per_step(), self.planned_steps
        if self.rows_ns:  # rows take their time by what they measure: only the mean of all is known
            each = (self.rows_ns[-1] - self.began_ns) / len(self.rows_ns) / 1e9
        is_measuring = bool(self._measured_span) and self.phase == self._measured_span
        if not (planned and each and is_measuring):
            return None
        return max(0.0, (planned - self.num_done) * each - since_last)

    @property
    def last_ns(self) -> int:
        """Return when the last step or row ended, by the clock of the rank."""
        return self.rows_ns[-1] if self.rows_ns else self.last.t_ns if self.last else 0


def common_paces(ranks: Sequence[RankSteps]) -> dict[int, float]:
    """Return rank -> seconds per step, over the same steps on every rank, because at any moment some have finished one
    more than others. Ranks that do not wait for each other may have no such steps any more: then over the last steps
    of each. Empty until all have two steps."""
    common = set(ranks[0].numbers).intersection(*(rank.numbers for rank in ranks[1:]))
    is_apart = not common and all(rank.last for rank in ranks)
    paces = {number: rank.seconds_per_step(None if is_apart else common) for number, rank in enumerate(ranks)}
    known = {number: seconds for number, seconds in paces.items() if seconds is not None}
    return known if len(known) == len(ranks) else {}


_ALL_FILES_BYTES, _LEAST_BYTES = 64 << 20, 1 << 16
"""The most that one look reads of all ranks together, and the least of each. Whoever comes late sees the end of long
files."""


class RankNow(msgspec.Struct, frozen=True):
    """A rank and its card. What is not known is None."""

    rank: int
    node: int
    host: str
    device: str
    device_id: str
    phase: str
    """`waiting` without a word of it; then starting, the name of the measured span, finishing, or how it ended."""
    step: int
    step_seconds: float | None
    loss: float | None
    used_bytes: int | None
    total_bytes: int | None
    power_watts: float | None
    utilisation_percent: float | None
    temperature_celsius: float | None


class RunNow(msgspec.Struct, frozen=True):
    """Steps, evaluation and time left are those of the first rank; a case without steps counts rows."""

    id: str
    case: str
    kind: str
    profile: str
    vendor: str
    device: str
    shape: str
    precision: str
    status: str
    host: str
    is_over: bool
    elapsed_seconds: float
    phase: str
    step: int
    planned_steps: int | None
    evaluation: EvaluationProgress | None
    samples_per_second: float | None
    loss: float | None
    median_step_seconds: float | None
    slowest: RankPace | None
    seconds_left: float | None
    power_watts: float | None
    """The power of all cards together, if that of each was read."""
    ranks: tuple[RankNow, ...]


class WatchedRun:
    """Follows a run by the files of its bundle. Nobody but the reader is disturbed."""

    def __init__(self, bundle: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raise BadInput for a bundle that cannot be read."""
        from flagperf.bundle.bundle import read_bundle  # here: agents import this module, and stay light

        self._bundle, self._clock = bundle, clock
        self._run = read_bundle(bundle).run
        job = self._run.job
        most_bytes = max(_LEAST_BYTES, _ALL_FILES_BYTES // job.world_size)
        self._places = [(place, node.host, card) for place, node in enumerate(job.nodes) for card in node.devices]
        self._ranks = [RankSteps(bundle / rank_events(rank), most_bytes) for rank in range(job.world_size)]
        self._cards = [
            CardFigures(bundle / node_samples(node.index), node.devices, _ALL_FILES_BYTES) for node in job.nodes
        ]
        self._moved_at = clock()
        """When the first rank was last seen to advance, by the clock of this process."""

    def look(self) -> RunNow:
        from flagperf.bundle.listing import run_line
        from flagperf.bundle.run_record import EXIT_CODES

        line = run_line(self._bundle)
        is_over = line.status == "killed" or (line.status in EXIT_CODES and not is_held(self._bundle))
        for index, rank in enumerate(self._ranks):
            num_before = rank.num_done
            rank.new_events()
            if index == 0 and rank.num_done != num_before:
                self._moved_at = self._clock()
        for node in self._cards:
            node.read()
        first, paces, job = self._ranks[0], common_paces(self._ranks), self._run.job
        speeds = [speed for rank in self._ranks if (speed := rank.samples_per_second()) is not None]
        losses = [rank.last.loss for rank in self._ranks if rank.last and rank.last.loss is not None]
        slowest = max(paces, key=lambda rank: paces[rank], default=None)
        watts = [node.power_watts for node in self._cards]
        known = [each for each in watts if each is not None]
        elapsed = 0.0
        with contextlib.suppress(ValueError):
            began = datetime.datetime.fromisoformat(self._run.created)
            elapsed = max(0.0, (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds())
        return RunNow(
            id=self._run.id,
            case=job.case,
            kind=job.kind,
            profile=job.profile,
            vendor=job.vendor,
            device=job.device_model.short_name,
            shape=job.shape,
            precision=job.precision.name,
            status=line.status,
            host=line.host,
            is_over=is_over,
            elapsed_seconds=elapsed,
            phase=first.phase,
            step=first.num_done,
            planned_steps=first.planned_steps,
            evaluation=first.evaluation,
            samples_per_second=sum(speeds) if speeds else None,
            loss=losses[0] if losses else None,
            median_step_seconds=median(paces.values()) if paces else None,
            slowest=None if slowest is None else RankPace(slowest, paces[slowest]),
            seconds_left=first.seconds_left(self._clock() - self._moved_at),
            power_watts=sum(known) if known and len(known) == len(watts) else None,
            ranks=tuple(self._rank_now(rank, paces.get(rank)) for rank in range(len(self._ranks))),
        )

    def _rank_now(self, rank: int, step_seconds: float | None) -> RankNow:
        steps, (node, host, device) = self._ranks[rank], self._places[rank]
        device_id = steps.started.device_id if steps.started else device.id
        readings = {reading.device_id: reading for reading in self._cards[node].readings}
        reading = readings.get(device_id, Reading(device_id))
        phase = steps.phase if steps.started else "waiting"
        if steps.ended is not None:
            phase = steps.ended.status
        elif steps.evaluation is not None:
            phase = "evaluation"
        return RankNow(
            rank=rank,
            node=node,
            host=host,
            device=device.short_name,
            device_id=device_id,
            phase=phase,
            step=steps.num_done,
            step_seconds=step_seconds if step_seconds is not None else steps.seconds_per_step(),
            loss=steps.last.loss if steps.last else None,
            used_bytes=reading.used_bytes,
            total_bytes=reading.total_bytes or device.memory_bytes,
            power_watts=reading.power_watts,
            utilisation_percent=reading.utilisation_percent,
            temperature_celsius=reading.temperature_celsius,
        )


class ProgressFollower:
    """Follows the ranks of a node and its probe. Steps are those of its first rank."""

    def __init__(
        self, events: Sequence[Path], samples: Path, devices: Sequence[Device] = (), first_rank: int = 0
    ) -> None:
        self._ranks = [RankSteps(path) for path in events]
        self._first_rank = first_rank
        self._cards = CardFigures(samples, devices)
        self._shown: tuple[int | None, float | None] = (None, None)

    def poll(self) -> Progress | None:
        """Return the new state, or None if nothing has changed."""
        num_new = sum(len(rank.new_events()) for rank in self._ranks)
        self._cards.read()
        figures = self._cards.used_bytes, self._cards.power_watts
        if not num_new and figures == self._shown:
            return None
        self._shown = figures
        used_bytes, power_watts = figures
        first = self._ranks[0]
        speeds = [speed for rank in self._ranks if (speed := rank.samples_per_second()) is not None]
        losses = [rank.last.loss for rank in self._ranks if rank.last and rank.last.loss is not None]
        paces = [RankPace(self._first_rank + index, each) for index, each in common_paces(self._ranks).items()]
        return Progress(
            step=first.num_done,
            planned_steps=first.planned_steps,
            samples_per_second=sum(speeds) if speeds else None,
            loss=losses[0] if losses else None,
            used_bytes=used_bytes,
            seconds_left=first.seconds_left((time.monotonic_ns() - first.last_ns) / 1e9),
            phase=first.phase,
            evaluation=first.evaluation,
            power_watts=power_watts,
            median_step_seconds=median(pace.step_seconds for pace in paces) if paces else None,
            slowest=max(paces, key=lambda pace: pace.step_seconds) if paces else None,
        )
