"""Supervision: listens to all agents of a run until each has said its last word, or has been made to."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Literal

from flagperf.events import Event, WorkersEnded, WorkersLaunched
from flagperf.launch.agents import Line, NodeAgent
from flagperf.spec import Progress, WorkersHaveEnded, WorkersHaveLaunched

STOP_SECONDS = 20.0
"""How long agents get to stop their workers before they are killed themselves."""

CAUSE_SECONDS = 5.0
"""How long the other nodes get, after one whose ranks only complain, to find that a rank of theirs has died."""

OnProgress = Callable[[int, Progress], None]


class Supervision:
    """Goes from `working` by way of `listening` (one node failed, others may know why) to `stopping`."""

    def __init__(
        self,
        agents: Sequence[NodeAgent],
        timeout_seconds: float | None,
        note: Callable[[Event], None],
        on_progress: OnProgress,
    ) -> None:
        self.lines: queue.Queue[Line] = queue.Queue()
        self.ended: dict[int, WorkersHaveEnded] = {}
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
                self._take(self.lines.get(timeout=left))
            except queue.Empty:
                self._give_up_waiting()
            self._answer_trouble()

    def _take(self, line: Line) -> None:
        message, now_ns = line.message, time.monotonic_ns()
        if message is None:
            self._open.discard(line.node_index)
        elif isinstance(message, Progress):
            self._on_progress(line.node_index, message)
        elif isinstance(message, WorkersHaveLaunched):
            self._note(_launched(line.node_index, message, now_ns))
        else:
            self.ended[line.node_index] = message
            ended = WorkersEnded(
                now_ns, node_index=line.node_index, node_t_ns=message.t_ns, returncode=message.returncode
            )
            self._note(ended)

    def _give_up_waiting(self) -> None:
        if self._phase == "stopping":
            for index in self._open:
                self._agents[index].kill()
            self._open.clear()
            return
        self.timed_out = self._phase == "working"
        self._stop()

    def _answer_trouble(self) -> None:
        if self._phase == "stopping" or not self._has_trouble():
            return
        if self._knows_the_cause():
            self._stop()
        elif self._phase == "working":
            self._phase, self._deadline = "listening", time.monotonic() + CAUSE_SECONDS

    def _has_trouble(self) -> bool:
        """A node whose workers failed, or whose agent went away without saying how they ended."""
        return any(message.failure for message in self.ended.values()) or bool(self._gone_without_a_word())

    def _knows_the_cause(self) -> bool:
        died = any(message.failure and message.failure.died for message in self.ended.values())
        return died or bool(self._gone_without_a_word()) or len(self.ended) == len(self._agents)

    def _gone_without_a_word(self) -> set[int]:
        return set(range(len(self._agents))) - self._open - set(self.ended)

    def _stop(self) -> None:
        self._phase, self._deadline = "stopping", time.monotonic() + STOP_SECONDS
        for agent in self._agents:
            agent.close_stdin()


def _launched(node_index: int, message: WorkersHaveLaunched, now_ns: int) -> WorkersLaunched:
    return WorkersLaunched(
        now_ns,
        node_index=node_index,
        node_t_ns=message.t_ns,
        command=message.command,
        env_script=message.env_script,
    )
