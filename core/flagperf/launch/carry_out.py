"""carry_out: one agent per node, their messages, and how it all ended.

Whatever happens here (a failing node, the time limit, Ctrl-C) is answered in the same way: every agent's stdin is
closed, each stops what it started, and the run's ending is what was noticed first.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec

from flagperf.api import AgentProcess, Cluster, Node
from flagperf.events import EVENT_SCHEMA, EventWriter, RunEnded, RunStarted, WorkersEnded, WorkersLaunched, this_clock
from flagperf.spec import AgentMessage, Failure, Job, Progress, WorkersHaveEnded, WorkersHaveLaunched, WorkOrder
from flagperf.store import PARENT_EVENTS, Ending, Status

STOP_SECONDS = 20.0
"""How long agents get to stop their workers before they are killed themselves."""

OnProgress = Callable[[int, Progress], None]
_decoder: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)


class _Line(msgspec.Struct, frozen=True):
    """A message of a node's agent; None when its stdout has ended."""

    node_index: int
    message: AgentMessage | None


def carry_out(job: Job, cluster: Cluster, bundle: Path, on_progress: OnProgress) -> Ending:
    nodes = [Node(part.index, part.address) for part in job.nodes]
    with EventWriter(bundle / PARENT_EVENTS) as writer:
        writer.write(RunStarted(t_ns=time.monotonic_ns(), schema=EVENT_SCHEMA, clock=this_clock()))
        agents: list[AgentProcess] = []
        try:
            agents += [cluster.start_agent(node, ["run"]) for node in nodes]
            ending = _supervise(job, agents, bundle, writer, on_progress)
        except KeyboardInterrupt:
            ending = Ending("interrupted", "stopped by the user")
        finally:
            _stop(agents)
        for node in nodes:
            cluster.collect(node, str(bundle))
        writer.write(RunEnded(time.monotonic_ns(), ending.status, ending.reason))
    return ending


def _supervise(
    job: Job, agents: Sequence[AgentProcess], bundle: Path, writer: EventWriter, on_progress: OnProgress
) -> Ending:
    lines: queue.Queue[_Line] = queue.Queue()
    for index, agent in enumerate(agents):
        order = WorkOrder(job, index, str(bundle.absolute()))
        with contextlib.suppress(BrokenPipeError):  # it is gone already; its stdout ends, which is noticed below
            agent.stdin.write(msgspec.json.encode(order) + b"\n")
            agent.stdin.flush()
        threading.Thread(target=_read_messages, args=(index, agent, lines), daemon=True).start()
        threading.Thread(target=_keep_errors, args=(index, agent, bundle), daemon=True).start()
    ended, timed_out = _collect_endings(job, agents, lines, writer, on_progress)
    if timed_out:
        return Ending("timed_out", f"not finished within {job.timeout_seconds:g} s")
    silent = [index for index in range(len(agents)) if index not in ended]
    if silent:
        return Ending(
            "failed", f"the agent on node {silent[0]} ended without a word; see logs/agent-{silent[0]:03d}.log"
        )
    failures = [message.failure for message in ended.values() if message.failure is not None]
    return _worst(failures) if failures else Ending("succeeded")


def _collect_endings(
    job: Job,
    agents: Sequence[AgentProcess],
    lines: queue.Queue[_Line],
    writer: EventWriter,
    on_progress: OnProgress,
) -> tuple[dict[int, WorkersHaveEnded], bool]:
    """Until every agent's stdout has ended. A failure or the time limit closes all stdins; the rest is awaited."""
    deadline = None if job.timeout_seconds is None else time.monotonic() + job.timeout_seconds
    ended: dict[int, WorkersHaveEnded] = {}
    timed_out, stopping, open_agents = False, False, set(range(len(agents)))
    while open_agents:
        try:
            line: _Line | None = lines.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            if stopping:
                for index in open_agents:
                    agents[index].kill()
                break
            timed_out = True
            line = None
        if line is None:
            pass
        elif line.message is None:
            open_agents.discard(line.node_index)
        elif isinstance(line.message, Progress):
            on_progress(line.node_index, line.message)
        else:
            _note(line.node_index, line.message, writer)
            if isinstance(line.message, WorkersHaveEnded):
                ended[line.node_index] = line.message
        if not stopping and (timed_out or _has_trouble(agents, open_agents, ended)):
            stopping, deadline = True, time.monotonic() + STOP_SECONDS
            _close_stdin(agents)
    return ended, timed_out


def _has_trouble(
    agents: Sequence[AgentProcess], open_agents: Collection[int], ended: Mapping[int, WorkersHaveEnded]
) -> bool:
    """A node whose workers failed, or whose agent went away without saying how they ended."""
    gone = [index for index in range(len(agents)) if index not in open_agents]
    return any(message.failure for message in ended.values()) or any(index not in ended for index in gone)


def _note(node_index: int, message: WorkersHaveLaunched | WorkersHaveEnded, writer: EventWriter) -> None:
    now_ns = time.monotonic_ns()
    if isinstance(message, WorkersHaveLaunched):
        writer.write(WorkersLaunched(now_ns, node_index=node_index, node_t_ns=message.t_ns))
    else:
        writer.write(WorkersEnded(now_ns, node_index=node_index, node_t_ns=message.t_ns, returncode=message.returncode))


def _worst(failures: Sequence[Failure]) -> Ending:
    """A rank that died without a word is the cause of what the others say; else the first node's word counts."""
    failure = next((failure for failure in failures if failure.died), failures[0])
    return Ending(cast("Status", failure.status), failure.reason)


def _read_messages(index: int, agent: AgentProcess, lines: queue.Queue[_Line]) -> None:
    for line in agent.stdout:
        lines.put(_Line(index, _decoder.decode(line)))
    lines.put(_Line(index, None))


def _keep_errors(index: int, agent: AgentProcess, bundle: Path) -> None:
    content = agent.stderr.read()
    if content:
        (bundle / "logs" / f"agent-{index:03d}.log").write_bytes(content)


def _close_stdin(agents: Sequence[AgentProcess]) -> None:
    for agent in agents:
        with contextlib.suppress(BrokenPipeError):
            agent.stdin.close()


def _stop(agents: Sequence[AgentProcess]) -> None:
    """No agent is left behind."""
    _close_stdin(agents)
    deadline = time.monotonic() + STOP_SECONDS
    for agent in agents:
        if agent.wait(max(0.0, deadline - time.monotonic())) is None:
            agent.kill()
