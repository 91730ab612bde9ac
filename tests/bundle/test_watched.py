"""What a run does now, from files that others write."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import msgspec

from flagperf.api import Device, Reading
from flagperf.bundle.bundle import new_bundle, seal, write_run
from flagperf.bundle.live_run import WatchedRun
from flagperf.bundle.paths import node_samples, rank_events
from flagperf.bundle.run_record import Ending, Run
from flagperf.event_files import EventWriter, this_clock
from flagperf.events import (
    EVENT_SCHEMA,
    ProbeStarted,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WorkerEnded,
    WorkerStarted,
)
from flagperf.spec.job import PlannedNode
from flagperf.spec.protocol import RankPace
from run_builders import make_run, minimal_job

GIB = 1 << 30


def make_two_by_two() -> Run:
    nodes = tuple(
        PlannedNode(index, "", f"node{index}", tuple(_card(f"card-{index}{number}") for number in range(2)), 2)
        for index in range(2)
    )
    run = make_run("20260101T000000Z-demo-acme-2x2-abc123")
    return msgspec.structs.replace(run, job=minimal_job(run_id=run.id, vendor="acme", nodes=nodes))


def _card(name: str) -> Device:
    return Device(name, "Acme X1", "X1", 0, 64 * GIB)


def begin(bundle: Path, rank: int, num_steps: int, step_seconds: float = 0.5) -> EventWriter:
    writer = EventWriter(bundle / rank_events(rank))
    place, card = (rank, rank % 2, rank // 2, 4), f"card-{rank // 2}{rank % 2}"
    started = WorkerStarted(0, EVENT_SCHEMA, this_clock(), *place, card, "uuid", "synchronize")
    writer.write(started, SpanBegan(0, "training", planned_steps=100))
    for number in range(1, num_steps + 1):
        writer.write(step(number, step_seconds, rank))
    return writer


def step(number: int, seconds: float, rank: int) -> StepFinished:
    end_ns = round(number * seconds * 1e9)
    return StepFinished(end_ns, number, end_ns - 1, 1, 0, {"samples": 4}, loss=rank + 0.5)


def sample(bundle: Path, node: int, *watts: float | None) -> None:
    with EventWriter(bundle / node_samples(node)) as writer:
        writer.write(ProbeStarted(0, EVENT_SCHEMA, this_clock(), node, "acme", "smi", 1.0))
        readings = [Reading(f"card-{node}{number}", 30 * GIB, power_watts=each) for number, each in enumerate(watts)]
        writer.write(Sampled(time.monotonic_ns(), tuple(readings)))


def test_ranks_cards_and_the_slowest_are_seen_and_what_is_not_written_yet_is_waited_for(tmp_path: Path) -> None:
    seconds = itertools.count(0.0, 0.25)
    with new_bundle(tmp_path, make_two_by_two(), ()) as bundle:
        watched = WatchedRun(bundle, lambda: next(seconds))
        now = watched.look()
        assert (now.status, now.is_over, now.step, now.phase) == ("running", False, 0, "starting")
        assert [rank.phase for rank in now.ranks] == ["waiting"] * 4
        writers = [begin(bundle, rank, 10, 0.75 if rank == 2 else 0.5) for rank in range(4)]
        sample(bundle, 0, 300, 310)
        sample(bundle, 1, 290, None)
        now = watched.look()
        assert (now.step, now.planned_steps, now.phase, now.loss) == (10, 100, "training", 0.5)
        assert (now.median_step_seconds, now.slowest) == (0.5, RankPace(2, 0.75))
        assert now.power_watts is None  # one card was not read
        assert [rank.power_watts for rank in now.ranks] == [300, 310, 290, None]
        assert [(rank.rank, rank.host, rank.device_id) for rank in now.ranks][2] == (2, "node1", "card-10")
        assert (now.ranks[3].used_bytes, now.ranks[3].total_bytes) == (30 * GIB, 64 * GIB)
        assert now.seconds_left == 90 * 0.5 - 0.25
        writers[0].write(step(11, 0.5, 0))
        assert watched.look().step == 11
        for writer in writers:
            writer.close()


def test_a_rank_says_when_it_finishes_and_how_it_ended(tmp_path: Path) -> None:
    with new_bundle(tmp_path, make_two_by_two(), ()) as bundle:
        watched = WatchedRun(bundle)
        with begin(bundle, 0, 2) as first, begin(bundle, 1, 2) as second:
            first.write(SpanEnded(1, "training", 0, 2))
            second.write(WorkerEnded(1, "out_of_memory", "no memory"))
        now = watched.look()
        assert [rank.phase for rank in now.ranks] == ["finishing", "out_of_memory", "waiting", "waiting"]
        assert now.seconds_left is None


def test_a_run_is_over_when_its_command_has_let_go_of_it(tmp_path: Path) -> None:
    run = make_two_by_two()
    with new_bundle(tmp_path, run, ()) as bundle:
        watched = WatchedRun(bundle)
        write_run(bundle, msgspec.structs.replace(run, ending=Ending("failed")))
        assert (watched.look().status, watched.look().is_over) == ("failed", False)
        seal(bundle)
    assert watched.look().is_over


def test_without_files_of_its_own_a_run_elsewhere_is_unknown_and_not_over(tmp_path: Path) -> None:
    with new_bundle(tmp_path, make_two_by_two(), ()) as bundle:
        pass
    now = WatchedRun(bundle).look()
    assert (now.status, now.is_over) == ("unknown", False)
