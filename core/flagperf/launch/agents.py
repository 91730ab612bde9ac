"""NodeAgent: the parent's side of the agent on one node. Its messages go to a queue, its stderr is kept."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flagperf.api import AgentProcess, Node
from flagperf.errors import FlagPerfError
from flagperf.messages import Message
from flagperf.plan.nodes import agent_stream
from flagperf.plugins import core_version
from flagperf.spec import AgentMessage, VersionMismatch, WorkOrder, check_hello, hello_line
from flagperf.store.paths import node_log

STDERR_SECONDS = 10.0
"""How long to wait for the end of stderr after an agent has ended: its watchdog may be at work, and another process may
hold it open."""

_decoder: msgspec.json.Decoder[AgentMessage] = msgspec.json.Decoder(AgentMessage)


class NodeMessage(msgspec.Struct, frozen=True):
    """A message of a node's agent; None when its stdout has ended."""

    node_index: int
    message: AgentMessage | None


class NodeAgent:
    def __init__(self, node: Node, process: AgentProcess) -> None:
        self.node = node
        self.refusal: Message | None = None
        """Why nothing that it says is read: it is of another flagperf version."""
        self._process = process
        self._errors = b""
        self._problems: list[str] = []
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)

    def begin(self, order: WorkOrder, messages: queue.Queue[NodeMessage]) -> None:
        """Raises PluginFailed. An agent that has died is noticed by the end of its stdout."""
        with agent_stream(self.node, "stdin"):
            self._process.stdin.write(hello_line(core_version()) + msgspec.json.encode(order) + b"\n")
            self._process.stdin.flush()
        threading.Thread(target=self._read_messages, args=(messages,), daemon=True).start()
        self._error_reader.start()

    def close_stdin(self) -> None:
        with self._noted(), agent_stream(self.node, "stdin"):
            self._process.stdin.close()

    def stop(self, timeout_seconds: float) -> None:
        """Close stdin, wait, then kill."""
        self.close_stdin()
        with self._noted():
            if self._process.wait(timeout_seconds) is None:
                self.kill()

    def kill(self) -> None:
        with self._noted():
            self._process.kill()

    def note(self, text: str) -> None:
        """For the agent's log."""
        self._problems.append(text)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """What fails in the cluster's plugin here is for the log alone."""
        try:
            yield
        except FlagPerfError as error:
            self.note(str(error))

    def keep_errors(self, bundle: Path) -> None:
        content = self._all_errors() + "".join(f"{text}\n" for text in self._problems).encode(errors="replace")
        if content:
            (bundle / node_log("agent", self.node.index)).write_bytes(content)

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
                message = _decoder.decode(line)
                messages.put(NodeMessage(self.node.index, message))
        except VersionMismatch as error:
            self.refusal = error.message
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        except Exception as error:  # noqa: BLE001  streams of a cluster's plugin
            self.note(f"its stdout cannot be read: {type(error).__name__}: {error}")
        finally:
            messages.put(NodeMessage(self.node.index, None))

    def _check_hello(self) -> None:
        line = self._process.stdout.readline()
        if line:  # else it ended before it said anything, which is no question of versions
            other = f"node {self.node.index} ({self.node.address})"
            check_hello(line, other=other, own="this command", own_version=core_version())

    def _read_errors(self) -> None:
        with self._noted(), agent_stream(self.node, "stderr"):
            self._errors = bytes(self._process.stderr.read())
