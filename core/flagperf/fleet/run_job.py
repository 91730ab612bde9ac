"""Have every node do its part of a job, follow them and return how the run ended.

A failing node, the time limit and Ctrl-C are handled in the same way: every agent is told to stop, each stops what it
started, and the run's ending is whatever was noticed first. What other machines write arrives as it is written.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
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
from flagperf.spec.protocol import hello_line, work_orders

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
    """Return how the run ended. Raise only where the bundle itself cannot be written (BundleFailed).

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
            for index in supervision.lost:  # its watchdog has ended and removed all, unless it was killed too
                share = {"job": {"run_id": job.run_id}, "node_index": index}
                with contextlib.suppress(OSError, subprocess.SubprocessError):  # the run has an ending in any case
                    subprocess.run(
                        [*module_command(sys.executable, "flagperf.agent"), "sweep"],
                        input=hello_line(version()) + msgspec.json.encode(share) + b"\n",
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        timeout=SWEEP_SECONDS,
                    )
        damage = find_damage()
        if ending.status == "succeeded":
            missing = _missing(job, bundle, supervision, None if fleet.writes_here else parts)
            problem = missing or damage or _parent_damage(bundle, writer.num_events)
            ending = ended("failed", problem) if problem else ending
        with writing(bundle):
            for index in range(len(fleet.nodes)):
                if fleet.errors(index):
                    (bundle / node_log("agent", index)).write_bytes(fleet.errors(index))
        note(RunEnded(time.monotonic_ns(), ending.status, ending.reason, ending.message))
    return ending


def _run_agents(job: Job, fleet: Fleet, bundle: Path, note: Note, supervision: Supervision, interface: str) -> Ending:
    is_begun = False
    try:
        note(
            RunStarted(
                t_ns=time.monotonic_ns(),
                schema=EVENT_SCHEMA,
                clock=this_clock(),
                planned=planned_fields(bundle),
                environment=environment_fingerprint(bundle),
                locked=is_held(bundle),
                pid_namespace=this_pid_namespace(),
            )
        )
        try:
            failed = fleet.start(range(len(fleet.nodes)))
        except (FlagPerfError, OSError) as error:
            return ended("failed", message("ending.agent_not_started", node=0, why=str(error)))
        if failed:
            first = min(failed)
            refused = next((fleet.refusal(each) for each in failed if fleet.refusal(each)), None)  # goes first
            not_started = message("ending.agent_not_started", node=first, why=str(failed[first]))
            return ended("failed", refused or not_started)
        directory = str(bundle.absolute()) if fleet.writes_here else ""
        is_begun = True
        for order in work_orders(job, directory, interface):
            fleet.request(order.node_index, "run", order)
        supervision.wait_for_all()
        return _ending(job, fleet, supervision)
    except KeyboardInterrupt as interrupt:
        ignore_signals()
        if is_begun:
            supervision.stop()
            supervision.wait_for_all()
        # A signal other than Ctrl-C may be the cluster's own: it takes back the nodes that the command itself runs on.
        signal = " ".join(interrupt.args) or CTRL_C
        said = message("ending.interrupted", signal=signal)
        why = fleet.explained(0) if signal != CTRL_C else ""
        return ended("failed", message("ending.because", what=said, why=why)) if why else ended("interrupted", said)


def _ending(job: Job, fleet: Fleet, supervision: Supervision) -> Ending:
    """Return what ended the run, from what the agents said and how they ended."""

    def name(index: int) -> str:
        """Tell nodes that are all this machine apart by their number alone."""
        return str(index) if fleet.nodes_share_host else f"{index} ({fleet.nodes[index].name})"

    if supervision.timed_out:
        return ended("timed_out", message("ending.timed_out", seconds=f"{job.timeout_seconds:g}"))
    if supervision.told_to_stop:
        index = min(supervision.told_to_stop)
        said = message("ending.told_to_stop", node=name(index), signal=supervision.told_to_stop[index])
        explained = [fleet.explained(each) for each in sorted({*supervision.told_to_stop, *supervision.lost})]
        why = "; ".join(dict.fromkeys(part for words in explained for part in words.split("; ") if part))
        return ended("failed", message("ending.because", what=said, why=why) if why else said)
    if supervision.lost:
        index = min(supervision.lost)
        why, log = supervision.lost[index], str(node_log("agent", index))
        refused = fleet.refusal(index)
        return ended("failed", refused or message("ending.node_lost", node=name(index), why=why, log=log))
    failures = {index: last.failure for index, last in supervision.ended.items() if last.failure is not None}
    if not failures:
        return Ending("succeeded")
    # A rank that died without recording a reason is the cause; else the failure that was reported first counts.
    index = next((index for index, failure in failures.items() if failure.died), next(iter(failures)))
    reason = failures[index].reason
    if len(fleet.nodes) > 1:
        reason = message("ending.on_node", node=name(index), what=reason)
    return ended(cast("Status", failures[index].status), reason)


def _missing(job: Job, bundle: Path, supervision: Supervision, parts: BundleParts | None) -> Message | None:
    """Return what the bundle lacks, whatever the agents said. `parts` is given where other machines send their files;
    what a lost one had sent is kept."""
    unsent = [node.index for node in job.nodes if parts is not None and node.index not in parts.complete]
    if unsent:
        return message("ending.not_collected", node=unsent[0], why="it did not send all of it")
    silent = [rank for rank in range(job.world_size) if not (bundle / rank_events(rank)).exists()]
    if silent:
        return message("ending.ranks_missing", rank=silent[0], count=len(silent))
    for index, last in supervision.ended.items():
        path = node_samples(index)
        # A probe that could not write said so; any other has left a file.
        if last.probe_failure is None and not os.path.lexists(bundle / path):
            return message("ending.record_unreadable", why=f"{path} is missing")
    return None


def _parent_damage(bundle: Path, num_written: int) -> Message | None:
    """Return what somebody else did to the parent's file: this process has written its events, and no write failed."""
    try:
        num_found = len(read_events(bundle / PARENT_EVENTS).events)
    except BadInput as error:
        return message("ending.record_unreadable", why=str(error))
    if num_found == num_written:
        return None
    why = f"{PARENT_EVENTS} has {num_found} events, {num_written} were written"
    return message("ending.record_unreadable", why=why)
