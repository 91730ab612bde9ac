"""NodeAgent: the parent's side of the agent on one node. Its messages go to a queue, its stderr is kept."""

from __future__ import annotations

import contextlib
import queue
import threading
from pathlib import Path

import msgspec

from flagperf.api import AgentProcess, Node
from flagperf.messages import Message
from flagperf.plugins import core_version
from flagperf.spec import AgentMessage, VersionMismatch, WorkOrder, check_hello, hello_line
from flagperf.store.paths import node_log

STDERR_SECONDS = 10.0
"""How long to wait for the end of stderr after an agent has ended: another process may hold it open."""

_decoder: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)


class NodeMessage(msgspec.Struct, frozen=True):
    """A message of a node's agent; None when its stdout has ended."""

    node_index: int
    message: AgentMessage | None


class NodeAgent:
    def __init__(self, node: Node, process: AgentProcess) -> None:
        self.refusal: Message | None = None
        """Why nothing that it says is read: it is of another flagperf version."""
        self._node = node
        self._process = process
        self._errors = b""
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)

    def begin(self, order: WorkOrder, messages: queue.Queue[NodeMessage]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died: its stdout ends, which is noticed
            self._process.stdin.write(hello_line(core_version()) + msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        threading.Thread(target=self._read_messages, args=(messages,), daemon=True).start()
        self._error_reader.start()

    def close_stdin(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def stop(self, timeout_seconds: float) -> None:
        """Close stdin, wait, then kill."""
        self.close_stdin()
        if self._process.wait(timeout_seconds) is None:
            self.kill()

    def kill(self) -> None:
        self._process.kill()

    def keep_errors(self, bundle: Path) -> None:
        content = self._all_errors()
        if content:
            (bundle / node_log("agent", self._node.index)).write_bytes(content)

    def last_line(self) -> str:
        lines = self._all_errors().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _all_errors(self) -> bytes:
        if self._error_reader.ident is not None:
            self._error_reader.join(STDERR_SECONDS)
        return self._errors

    def _read_messages(self, messages: queue.Queue[NodeMessage]) -> None:
        """The end of stdout, a line that is no message, and a hello of another version end the conversation."""
        try:
            self._check_hello()
            for line in self._process.stdout:
                messages.put(NodeMessage(self._node.index, _decoder.decode(line)))
        except VersionMismatch as error:
            self.refusal = error.message
        except msgspec.DecodeError:
            pass
        messages.put(NodeMessage(self._node.index, None))

    def _check_hello(self) -> None:
        line = self._process.stdout.readline()
        if line:  # else it ended before it said anything, which is no question of versions
            other = f"node {self._node.index} ({self._node.address})"
            check_hello(line, other=other, own="this command", own_version=core_version())

    def _read_errors(self) -> None:
        self._errors = self._process.stderr.read()
