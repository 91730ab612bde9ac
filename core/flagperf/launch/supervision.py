"""Supervision: follows the messages of all agents of a run until every agent has ended or was stopped."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Literal

from flagperf.events import Event, WorkersEnded, WorkersLaunched
from flagperf.launch.agents import NodeAgent, NodeMessage
from flagperf.spec import Progress, WorkersEndedMessage, WorkersLaunchedMessage

STOP_SECONDS = 20.0
"""How long agents get to stop their workers before they are killed themselves."""

CAUSE_SECONDS = 5.0
"""How long the other nodes get, after one whose ranks only report errors, to find that one of their ranks died."""

OnProgress = Callable[[int, Progress], None]


class Supervision:
    """Phases: `working`, `listening` (one node failed, another may know the cause), `stopping`."""

    def __init__(
        self,
        agents: Sequence[NodeAgent],
        timeout_seconds: float | None,
        note: Callable[[Event], None],
        on_progress: OnProgress,
    ) -> None:
        self.messages: queue.Queue[NodeMessage] = queue.Queue()
        self.ended: dict[int, WorkersEndedMessage] = {}
        self.timed_out = False
        self._agents = agents
        self._open = set(range(len(agents)))
        self._note = note
        self._on_progress = on_progress
        self._phase: Literal["working", "listening", "stopping"] = "working"
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds

    def wait_for_all(self) -> None:
        """Until every agent's stdout has ended."""
        while self._open:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            try:
                self._apply(self.messages.get(timeout=left))
            except queue.Empty:
                self._on_timeout()
            self._react_to_failure()

    def _apply(self, received: NodeMessage) -> None:
        message, now_ns = received.message, time.monotonic_ns()
        if message is None:
            self._open.discard(received.node_index)
        elif isinstance(message, Progress):
            self._on_progress(received.node_index, message)
        elif isinstance(message, WorkersLaunchedMessage):
            self._note(_launched(received.node_index, message, now_ns))
        else:
            self.ended[received.node_index] = message
            ended = WorkersEnded(
                now_ns,
                node_index=received.node_index,
                node_t_ns=message.t_ns,
                returncode=message.returncode,
                probe_failure=message.probe_failure,
            )
            self._note(ended)

    def _on_timeout(self) -> None:
        if self._phase == "stopping":
            for index in self._open:
                self._agents[index].kill()
            self._open.clear()
            return
        self.timed_out = self._phase == "working"
        self._stop()

    def _react_to_failure(self) -> None:
        if self._phase == "stopping" or not self._has_failure():
            return
        if self._knows_the_cause():
            self._stop()
        elif self._phase == "working":
            self._phase, self._deadline = "listening", time.monotonic() + CAUSE_SECONDS

    def _has_failure(self) -> bool:
        """A node whose workers failed, or whose agent ended without reporting how they ended."""
        return any(message.failure for message in self.ended.values()) or bool(self._silent_nodes())

    def _knows_the_cause(self) -> bool:
        died = any(message.failure and message.failure.died for message in self.ended.values())
        return died or bool(self._silent_nodes()) or len(self.ended) == len(self._agents)

    def _silent_nodes(self) -> set[int]:
        return set(range(len(self._agents))) - self._open - set(self.ended)

    def _stop(self) -> None:
        self._phase, self._deadline = "stopping", time.monotonic() + STOP_SECONDS
        for agent in self._agents:
            agent.close_stdin()


def _launched(node_index: int, message: WorkersLaunchedMessage, now_ns: int) -> WorkersLaunched:
    return WorkersLaunched(
        now_ns,
        node_index=node_index,
        node_t_ns=message.t_ns,
        command=message.command,
        env_script=message.env_script,
    )
