"""WatchedRun: what a run does now, from the files of its bundle as they grow. Nobody but the reader is disturbed."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flagperf.api import Device, Reading
from flagperf.robust import median
from flagperf.spec import EvaluationProgress, Job, RankPace
from flagperf.store.alive import is_held
from flagperf.store.bundle import read_bundle
from flagperf.store.live_cards import CardFigures
from flagperf.store.live_ranks import RankSteps, common_paces
from flagperf.store.paths import node_samples, rank_events
from flagperf.store.run import EXIT_CODES
from flagperf.store.run_line import run_line

_ALL_FILES_BYTES, _LEAST_BYTES = 64 << 20, 1 << 16
"""What one look reads of all ranks together, and of each at least. Whoever comes late sees the end of long files."""


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
    """Of all cards together, if the power of each was read."""
    ranks: tuple[RankNow, ...]


class WatchedRun:
    def __init__(self, bundle: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises BadInput for a bundle that cannot be read."""
        self._bundle, self._clock = bundle, clock
        self._run = read_bundle(bundle).run
        job = self._run.job
        most_bytes = max(_LEAST_BYTES, _ALL_FILES_BYTES // job.world_size)
        self._places = _places(job)
        self._ranks = [RankSteps(bundle / rank_events(rank), most_bytes) for rank in range(job.world_size)]
        self._cards = [
            CardFigures(bundle / node_samples(node.index), node.devices, _ALL_FILES_BYTES) for node in job.nodes
        ]
        self._moved_at = clock()
        """When the first rank was last seen to advance, by the clock of this process."""

    def look(self) -> RunNow:
        line = run_line(self._bundle)
        is_over = line.status == "killed" or (line.status in EXIT_CODES and not is_held(self._bundle))
        self._read()
        first, paces, job = self._ranks[0], common_paces(self._ranks), self._run.job
        speeds = [speed for rank in self._ranks if (speed := rank.samples_per_second()) is not None]
        losses = [rank.last.loss for rank in self._ranks if rank.last and rank.last.loss is not None]
        slowest = max(paces, key=lambda rank: paces[rank], default=None)
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
            elapsed_seconds=_seconds_since(self._run.created),
            phase=first.phase,
            step=first.num_done,
            planned_steps=first.planned_steps,
            evaluation=first.evaluation,
            samples_per_second=sum(speeds) if speeds else None,
            loss=losses[0] if losses else None,
            median_step_seconds=median(paces.values()) if paces else None,
            slowest=None if slowest is None else RankPace(slowest, paces[slowest]),
            seconds_left=first.seconds_left(self._clock() - self._moved_at),
            power_watts=_total([node.power_watts for node in self._cards]),
            ranks=tuple(self._rank_now(rank, paces.get(rank)) for rank in range(len(self._ranks))),
        )

    def _read(self) -> None:
        for index, rank in enumerate(self._ranks):
            num_before = rank.num_done
            rank.new_events()
            if index == 0 and rank.num_done != num_before:
                self._moved_at = self._clock()
        for node in self._cards:
            node.read()

    def _rank_now(self, rank: int, step_seconds: float | None) -> RankNow:
        steps, (node, host, device) = self._ranks[rank], self._places[rank]
        device_id = steps.started.device_id if steps.started else device.id
        readings = {reading.device_id: reading for reading in self._cards[node].readings}
        reading = readings.get(device_id, Reading(device_id))
        return RankNow(
            rank=rank,
            node=node,
            host=host,
            device=device.short_name,
            device_id=device_id,
            phase=_phase(steps),
            step=steps.num_done,
            step_seconds=step_seconds if step_seconds is not None else steps.seconds_per_step(),
            loss=steps.last.loss if steps.last else None,
            used_bytes=reading.used_bytes,
            total_bytes=reading.total_bytes or device.memory_bytes,
            power_watts=reading.power_watts,
            utilisation_percent=reading.utilisation_percent,
            temperature_celsius=reading.temperature_celsius,
        )


def _phase(rank: RankSteps) -> str:
    if rank.ended is not None:
        return rank.ended.status
    if rank.evaluation is not None:
        return "evaluation"
    return rank.phase if rank.started else "waiting"


def _places(job: Job) -> list[tuple[int, str, Device]]:
    """Of every rank: which node, its host, and the card that was planned."""
    return [(place, node.host, device) for place, node in enumerate(job.nodes) for device in node.devices]


def _total(watts: Sequence[float | None]) -> float | None:
    known = [each for each in watts if each is not None]
    return sum(known) if known and len(known) == len(watts) else None


def _seconds_since(created: str) -> float:
    try:
        began = datetime.datetime.fromisoformat(created)
    except ValueError:
        return 0.0
    return max(0.0, (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds())
