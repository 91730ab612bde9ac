"""run_job: has every node do its part of a job, follows them and returns how the run ended.

A failing node, the time limit and Ctrl-C are handled in the same way: every agent is told to stop, each stops what it
started, and the run's ending is whatever was noticed first. What other machines write arrives as it is written.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from flagperf import version
from flagperf.bundle.bundle import environment_fingerprint, planned_fields, writing
from flagperf.bundle.liveness import is_held, this_pid_namespace
from flagperf.bundle.paths import PARENT_EVENTS, node_log, node_samples, rank_events
from flagperf.bundle.run_record import Ending, Status, ended
from flagperf.errors import BadInput, FlagPerfError
from flagperf.event_files import EventWriter, read_events, this_clock
from flagperf.events import EVENT_SCHEMA, Event, RunEnded, RunStarted
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.signals import CTRL_C, ignore_signals
from flagperf.fleet.supervision import BundleParts, OnProgress, Supervision
from flagperf.kit import module_command
from flagperf.messages import Message, message
from flagperf.spec.job import Job
from flagperf.spec.protocol import Failure, hello_line, work_orders

SWEEP_SECONDS = 30.0

Note = Callable[[Event], None]
"""Writes an event into the parent's file."""


def run_job(
    job: Job,
    fleet: Fleet,
    bundle: Path,
    on_progress: OnProgress,
    interface: str = "",
    find_damage: Callable[[], Message | None] = lambda: None,
) -> Ending:
    """Always returns an ending. Raises only where the bundle itself cannot be written (BundleFailed).

    `find_damage` reads the record when the agents have ended. What was damaged during the run makes it a failed one: no
    figure can be made of it.
    """
    with writing(bundle):
        writer = EventWriter(bundle / PARENT_EVENTS)

    def note(event: Event) -> None:
        with writing(bundle):
            writer.write(event)

    with writer:
        parts = BundleParts(job, bundle)
        supervision = Supervision(fleet, job.timeout_seconds, note, on_progress, parts)
        ending = _run_agents(job, fleet, bundle, note, supervision, interface)
        ignore_signals()  # the run has ended: nothing is left to interrupt
        if fleet.nodes_share_host:
            for index in supervision.lost:
                _sweep(job.run_id, index)
        arrived = None if fleet.writes_here else _not_arrived(job, parts)
        missing = _incomplete(job, bundle) or _without_samples(bundle, supervision)
        damage = find_damage() or _parent_damage(bundle, writer.num_events)
        ending = _first_problem(ending, arrived, missing, _failed(damage))
        _keep_errors(fleet, bundle)
        note(RunEnded(time.monotonic_ns(), ending.status, ending.reason, ending.message))
    return ending


def _sweep(run_id: str, index: int) -> None:
    """What the agent left on this machine. Its watchdog has done that already, unless it was killed as well."""
    share = {"job": {"run_id": run_id}, "node_index": index}
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # the run has an ending all the same
        subprocess.run(
            [*module_command(sys.executable, "flagperf.agent"), "sweep"],
            input=hello_line(version()) + msgspec.json.encode(share) + b"\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SWEEP_SECONDS,
        )


def _first_problem(*endings: Ending | None) -> Ending:
    """What went wrong first; success where nothing did."""
    known = [ending for ending in endings if ending is not None]
    return next((ending for ending in known if ending.status != "succeeded"), known[0])


def _not_arrived(job: Job, parts: BundleParts) -> Ending | None:
    """Agents on other machines send their files. Of one that was lost, what had arrived is kept."""
    missing = [node.index for node in job.nodes if node.index not in parts.complete]
    if not missing:
        return None
    return ended("failed", message("ending.not_collected", node=missing[0], why="it did not send all of it"))


def _incomplete(job: Job, bundle: Path) -> Ending | None:
    """Whatever the agents said: without the events of every rank there is no result."""
    missing = [rank for rank in range(job.world_size) if not (bundle / rank_events(rank)).exists()]
    return ended("failed", message("ending.ranks_missing", rank=missing[0], count=len(missing))) if missing else None


def _without_samples(bundle: Path, supervision: Supervision) -> Ending | None:
    """A probe that could not write said so; any other has left a file."""
    written = [index for index, last in supervision.ended.items() if last.probe_failure is None]
    missing = [str(node_samples(index)) for index in written if not os.path.lexists(bundle / node_samples(index))]
    return _failed(message("ending.record_unreadable", why=f"{missing[0]} is missing")) if missing else None


def _parent_damage(bundle: Path, num_written: int) -> Message | None:
    """Somebody else's doing: this process has written its events, and no write failed."""
    try:
        num_found = len(read_events(bundle / PARENT_EVENTS).events)
    except BadInput as error:
        return message("ending.record_unreadable", why=str(error))
    if num_found == num_written:
        return None
    why = f"{PARENT_EVENTS} has {num_found} events, {num_written} were written"
    return message("ending.record_unreadable", why=why)


def _failed(why: Message | None) -> Ending | None:
    return None if why is None else ended("failed", why)


def _keep_errors(fleet: Fleet, bundle: Path) -> None:
    with writing(bundle):
        for index in range(len(fleet.nodes)):
            if fleet.errors(index):
                (bundle / node_log("agent", index)).write_bytes(fleet.errors(index))


def _run_agents(job: Job, fleet: Fleet, bundle: Path, note: Note, supervision: Supervision, interface: str) -> Ending:
    is_begun = False
    try:
        note(_run_started(bundle))
        problem = _start(fleet)
        if problem is None:
            directory = str(bundle.absolute()) if fleet.writes_here else ""
            is_begun = True
            for order in work_orders(job, directory, interface):
                fleet.request(order.node_index, "run", order)
            supervision.wait_for_all()
        return problem or _ending(job, fleet, supervision)
    except KeyboardInterrupt as interrupt:
        ignore_signals()
        if is_begun:
            supervision.stop()
            supervision.wait_for_all()
        return _interrupted(interrupt, fleet)


def _interrupted(interrupt: KeyboardInterrupt, fleet: Fleet) -> Ending:
    """A signal other than Ctrl-C may be the cluster's own: it takes back the nodes that the command itself runs on."""
    signal = " ".join(interrupt.args) or CTRL_C
    said = message("ending.interrupted", signal=signal)
    why = fleet.explained(0) if signal != CTRL_C else ""
    return ended("failed", message("ending.because", what=said, why=why)) if why else ended("interrupted", said)


def _run_started(bundle: Path) -> RunStarted:
    return RunStarted(
        t_ns=time.monotonic_ns(),
        schema=EVENT_SCHEMA,
        clock=this_clock(),
        planned=planned_fields(bundle),
        environment=environment_fingerprint(bundle),
        locked=is_held(bundle),
        pid_namespace=this_pid_namespace(),
    )


def _start(fleet: Fleet) -> Ending | None:
    try:
        failed = fleet.start(range(len(fleet.nodes)))
    except (FlagPerfError, OSError) as error:
        return ended("failed", message("ending.agent_not_started", node=0, why=str(error)))
    if not failed:
        return None
    index = min(failed)
    refused = next((fleet.refusal(each) for each in failed if fleet.refusal(each)), None)
    return ended("failed", refused or message("ending.agent_not_started", node=index, why=str(failed[index])))


def _ending(job: Job, fleet: Fleet, supervision: Supervision) -> Ending:
    if supervision.timed_out:
        return ended("timed_out", message("ending.timed_out", seconds=f"{job.timeout_seconds:g}"))
    if supervision.told_to_stop:
        index = min(supervision.told_to_stop)
        said = message("ending.told_to_stop", node=_name(fleet, index), signal=supervision.told_to_stop[index])
        why = _explained(fleet, [*supervision.told_to_stop, *supervision.lost])
        return ended("failed", message("ending.because", what=said, why=why) if why else said)
    if supervision.lost:
        return ended("failed", _loss(fleet, min(supervision.lost), supervision))
    failures = {index: last.failure for index, last in supervision.ended.items() if last.failure is not None}
    return _worst(failures, fleet) if failures else Ending("succeeded")


def _explained(fleet: Fleet, indexes: Sequence[int]) -> str:
    """What the cluster says of these nodes, each thing once."""
    said = [fleet.explained(index) for index in sorted(set(indexes))]
    return "; ".join(dict.fromkeys(part for words in said for part in words.split("; ") if part))


def _loss(fleet: Fleet, index: int, supervision: Supervision) -> Message:
    refused = fleet.refusal(index)
    if refused is not None:
        return refused
    log = str(node_log("agent", index))
    return message("ending.node_lost", node=_name(fleet, index), why=supervision.lost[index], log=log)


def _name(fleet: Fleet, index: int) -> str:
    """Nodes that are all this machine are told apart by their number alone."""
    return str(index) if fleet.nodes_share_host else f"{index} ({fleet.nodes[index].name})"


def _worst(failures: Mapping[int, Failure], fleet: Fleet) -> Ending:
    """A rank that died without recording a reason is the cause; else the failure that was reported first counts."""
    index = next((index for index, failure in failures.items() if failure.died), next(iter(failures)))
    failure, reason = failures[index], failures[index].reason
    if len(fleet.nodes) > 1:
        reason = message("ending.on_node", node=_name(fleet, index), what=reason)
    return ended(cast("Status", failure.status), reason)
