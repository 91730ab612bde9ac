"""Follow what the agents of a run say until each of them has ended its part, was stopped or is gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from flagperf.bundle.bundle import writing
from flagperf.bundle.paths import node_log, node_samples, rank_events, rank_log, rank_operators
from flagperf.errors import NodeFailed
from flagperf.events import Event, WorkersEnded, WorkersLaunched
from flagperf.files import sha256_of
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.signals import held_back
from flagperf.spec.job import Job
from flagperf.spec.protocol import (
    AgentMessage,
    FilePart,
    FilesComplete,
    Progress,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
)
from flagperf.units import exit_status

STOP_SECONDS = 20.0
"""How long agents get to stop their workers before they are given up."""

CAUSE_SECONDS = 5.0
"""How long the other nodes get, after one whose ranks only report errors, to find that one of their ranks died."""

OnProgress = Callable[[int, Progress], None]

_decoder: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)


class BundleParts:
    """Writes what the nodes send of their files into the bundle as it arrives. Other machines are not trusted: a node
    can write its own files of a bundle and nothing else."""

    def __init__(self, job: Job, bundle: Path) -> None:
        self._bundle = bundle
        self._own: dict[int, set[str]] = {}
        self._sizes: dict[str, int] = {}
        self.complete: set[int] = set()
        """Nodes all of whose files are here."""
        first = 0
        for node in job.nodes:
            ranks = range(first, first + len(node.devices))
            first += len(node.devices)
            paths = [path for rank in ranks for path in (rank_events(rank), rank_log(rank))]
            if job.record_steps:
                paths += map(rank_operators, ranks)
            # not the agent's log, which is written here
            paths += [node_samples(node.index), node_log("launcher", node.index), node_log("probe", node.index)]
            self._own[node.index] = set(map(str, paths))

    def take(self, index: int, part: FilePart) -> None:
        """Write a part. Raise NodeFailed for what the node may not send, BundleFailed where it cannot be written."""
        if part.path not in self._own[index]:
            raise NodeFailed(f"it sent {part.path!r}, which is not a file of its own")
        size = self._sizes.get(part.path, 0)
        if not 0 <= part.offset <= size:
            raise NodeFailed(f"it sent {part.path} from byte {part.offset} on, but {size} have arrived")
        with (
            writing(self._bundle),
            (self._bundle / part.path).open("r+b" if part.path in self._sizes else "xb") as file,
        ):
            file.truncate(part.offset)
            file.seek(part.offset)
            file.write(part.content)
        self._sizes[part.path] = part.offset + len(part.content)

    def finish(self, index: int, files: FilesComplete) -> None:
        """Compare what has arrived with the node's digests. Raise NodeFailed where it differs."""
        for path, digest in files.digests.items():
            if path in self._own[index] and path in self._sizes:
                with writing(self._bundle):
                    if sha256_of(self._bundle / path) == digest:
                        continue
            raise NodeFailed(f"{path} did not arrive as it is on the node")
        self.complete.add(index)


class Supervision:
    """Follows all agents in three phases: `working`, `listening` (one node failed, another may know the cause) and
    `stopping`."""

    def __init__(
        self,
        fleet: Fleet,
        timeout_seconds: float | None,
        note: Callable[[Event], None],
        on_progress: OnProgress,
        parts: BundleParts,
    ) -> None:
        self.ended: dict[int, WorkersEndedMessage] = {}
        self.lost: dict[int, str] = {}
        """Nodes whose agent did not report how its workers ended -> what is known."""
        self.told_to_stop: dict[int, str] = {}
        """Nodes whose agent somebody else has told to stop -> the signal."""
        self.timed_out = False
        self._fleet = fleet
        self._num_nodes = len(fleet.nodes)
        self._open = set(range(self._num_nodes))
        self._partial: dict[int, bytearray] = {index: bytearray() for index in self._open}
        self._note = note
        self._parts = parts
        self._on_progress = on_progress
        self._phase: Literal["working", "listening", "stopping"] = "working"
        self._deadline = None if timeout_seconds is None else self._fleet.waiting.now() + timeout_seconds

    def wait_for_all(self) -> None:
        """Return when every agent has ended its part, or is gone."""
        while self._open:
            with held_back():  # for a second at most
                left = 1.0 if self._deadline is None else max(0.0, self._deadline - self._fleet.waiting.now())
                for event in self._fleet.poll(left):
                    if event.index not in self._open:
                        continue
                    if event.content:
                        self._read(event.index, event.content)
                    elif event.leaving:
                        self.told_to_stop[event.index] = event.leaving
                    elif event.lost is not None:
                        self._close(event.index, event.lost)
                    elif event.ended is not None:
                        code, error = event.ended.code, event.ended.error.strip()
                        said = error.splitlines()[-1].strip() if error else exit_status(code)
                        self._close(event.index, NodeFailed(said))
                if self._deadline is not None and self._fleet.waiting.now() >= self._deadline:
                    if self._phase == "stopping":
                        for index in list(self._open):
                            self._fleet.drop(index, had_time=True)
                            self._close(index, NodeFailed(f"it did not stop within {STOP_SECONDS:g} s"))
                    else:
                        self.timed_out = self._phase == "working"
                        self.stop()
                self._react_to_failure()

    def _close(self, index: int, why: NodeFailed) -> None:
        self._open.discard(index)
        if index not in self.ended:
            self.lost[index] = str(why)

    def _read(self, index: int, content: bytes) -> None:
        """Read the lines that are complete. Give the node up for a line that is not valid."""
        partial = self._partial[index]
        partial += content
        while (end := partial.find(b"\n")) >= 0:
            line = bytes(partial[:end])
            del partial[: end + 1]
            try:
                self._take(index, _decoder.decode(line))
                continue
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                why = NodeFailed(f"it sent an invalid message ({error})")
            except NodeFailed as error:
                why = error
            self._fleet.drop(index)
            self.ended.pop(index, None)
            self._close(index, why)
            return

    def _take(self, index: int, message: AgentMessage) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(message, Progress):
            self._on_progress(index, message)
        elif isinstance(message, WorkersLaunchedMessage):
            launched = WorkersLaunched(
                now_ns,
                node_index=index,
                node_t_ns=message.t_ns,
                command=message.command,
                env_script=message.env_script,
            )
            self._note(launched)
        elif isinstance(message, FilePart):
            self._parts.take(index, message)
        elif isinstance(message, FilesComplete):
            self._parts.finish(index, message)
        else:
            self.ended[index] = message
            ended = WorkersEnded(
                now_ns,
                node_index=index,
                node_t_ns=message.t_ns,
                returncode=message.returncode,
                probe_failure=message.probe_failure,
            )
            self._note(ended)

    def _react_to_failure(self) -> None:
        """Stop the run once the cause is known: a rank died, an agent ended without reporting how its workers ended, or
        all have reported. Before that, listen to the other nodes."""
        failures = [message.failure for message in self.ended.values() if message.failure]
        is_agent_gone = bool(self.lost or self.told_to_stop)
        if self._phase == "stopping" or not (failures or is_agent_gone):
            return
        if is_agent_gone or any(failure.died for failure in failures) or len(self.ended) == self._num_nodes:
            self.stop()
        elif self._phase == "working":
            self._phase, self._deadline = "listening", self._fleet.waiting.now() + CAUSE_SECONDS

    def stop(self) -> None:
        self._phase, self._deadline = "stopping", self._fleet.waiting.now() + STOP_SECONDS
        for index in self._open:
            self._fleet.stop(index)
