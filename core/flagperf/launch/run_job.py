"""run_job: starts one agent per node, follows their messages and returns how the run ended.

A failing node, the time limit and Ctrl-C are handled in the same way: every agent's stdin is closed, each agent stops
what it started, and the run's ending is whatever was noticed first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from flagperf.api import Cluster, Node
from flagperf.errors import FlagPerfError, PluginFailed
from flagperf.events import EVENT_SCHEMA, Event, EventWriter, RunEnded, RunStarted, this_clock
from flagperf.launch.agents import NodeAgent
from flagperf.launch.signals import ignore_signals
from flagperf.launch.supervision import STOP_SECONDS, OnProgress, Supervision
from flagperf.messages import Message, message
from flagperf.spec import Failure, Job, WorkOrder
from flagperf.store.bundle import environment_fingerprint, planned_fields, writing
from flagperf.store.paths import PARENT_EVENTS, node_log
from flagperf.store.run import Ending, Status, ended

Note = Callable[[Event], None]
"""Writes an event into the parent's file."""


def run_job(
    job: Job,
    cluster: Cluster,
    bundle: Path,
    on_progress: OnProgress,
    find_damage: Callable[[], Message | None] = lambda: None,
) -> Ending:
    """Always returns an ending. Raises only where the bundle itself cannot be written (BundleFailed).

    `find_damage` reads the record when the agents have ended. What was damaged during the run makes it a failed one: no
    figure can be made of it.
    """
    nodes = [Node(part.index, part.address) for part in job.nodes]
    with writing(bundle):
        writer = EventWriter(bundle / PARENT_EVENTS)

    def note(event: Event) -> None:
        with writing(bundle):
            writer.write(event)

    with writer:
        ending = _run_agents(job, nodes, cluster, bundle, note, on_progress)
        ending = _first_problem(ending, _collect(nodes, cluster, bundle), _failed(find_damage()))
        note(RunEnded(time.monotonic_ns(), ending.status, ending.reason, ending.message))
    return ending


def _first_problem(*endings: Ending | None) -> Ending:
    """What went wrong first; success where nothing did."""
    known = [ending for ending in endings if ending is not None]
    return next((ending for ending in known if ending.status != "succeeded"), known[0])


def _collect(nodes: Sequence[Node], cluster: Cluster, bundle: Path) -> Ending | None:
    """From every node, whatever happens with another."""
    failed: list[Ending] = []
    for node in nodes:
        try:
            cluster.collect(node, str(bundle))
        except (FlagPerfError, OSError) as error:
            failed.append(ended("failed", message("ending.not_collected", node=node.index, why=str(error))))
    return failed[0] if failed else None


def _failed(why: Message | None) -> Ending | None:
    return None if why is None else ended("failed", why)


def _run_agents(
    job: Job, nodes: Sequence[Node], cluster: Cluster, bundle: Path, note: Note, on_progress: OnProgress
) -> Ending:
    agents: list[NodeAgent] = []
    try:
        try:
            note(_run_started(bundle))
            problem = _start(agents, nodes, cluster)
            ending = problem or _supervise(job, agents, bundle, note, on_progress)
        finally:
            _stop(agents)
        ignore_signals()  # the run has ended: nothing is left to interrupt
    except KeyboardInterrupt as interrupt:
        ignore_signals()
        ending = ended("interrupted", message("ending.interrupted", signal=" ".join(interrupt.args) or "Ctrl-C"))
        _stop(agents)
    with writing(bundle):
        for agent in agents:
            agent.keep_errors(bundle)
    return ending


def _run_started(bundle: Path) -> RunStarted:
    return RunStarted(
        t_ns=time.monotonic_ns(),
        schema=EVENT_SCHEMA,
        clock=this_clock(),
        planned=planned_fields(bundle),
        environment=environment_fingerprint(bundle),
        seals=True,
    )


def _start(agents: list[NodeAgent], nodes: Sequence[Node], cluster: Cluster) -> Ending | None:
    for node in nodes:
        try:
            agents.append(NodeAgent(node, cluster.start_agent(node, ["run"])))
        except (FlagPerfError, OSError) as error:
            return ended("failed", message("ending.agent_not_started", node=node.index, why=str(error)))
    return None


def _supervise(job: Job, agents: Sequence[NodeAgent], bundle: Path, note: Note, on_progress: OnProgress) -> Ending:
    supervision = Supervision(agents, job.timeout_seconds, note, on_progress)
    for index, agent in enumerate(agents):
        try:
            agent.begin(WorkOrder(job, index, str(bundle.absolute())), supervision.messages)
        except PluginFailed as error:
            return ended("failed", message("ending.agent_not_started", node=index, why=str(error)))
    supervision.wait_for_all()
    if supervision.timed_out:
        return ended("timed_out", message("ending.timed_out", seconds=f"{job.timeout_seconds:g}"))
    silent = [index for index in range(len(agents)) if index not in supervision.ended]
    if silent:
        first = next((index for index in silent if agents[index].refusal), silent[0])
        return ended("failed", _silence(first, agents[first]))
    failures = [last.failure for last in supervision.ended.values() if last.failure is not None]
    return _worst(failures) if failures else Ending("succeeded")


def _silence(index: int, agent: NodeAgent) -> Message:
    if agent.refusal:
        return agent.refusal
    last_line = agent.last_line()
    if not last_line:
        return message("ending.agent_silent", node=index)
    return message("ending.agent_died", node=index, line=last_line, log=str(node_log("agent", index)))


def _worst(failures: Sequence[Failure]) -> Ending:
    """A rank that died without recording a reason is the cause; else the first node's failure counts."""
    failure = next((failure for failure in failures if failure.died), failures[0])
    return ended(cast("Status", failure.status), failure.reason)


def _stop(agents: Sequence[NodeAgent]) -> None:
    """All at once: each gets the same time to stop its workers."""
    for agent in agents:
        agent.close_stdin()
    deadline = time.monotonic() + STOP_SECONDS
    for agent in agents:
        agent.stop(max(0.0, deadline - time.monotonic()))
