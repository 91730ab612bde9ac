"""The connection to the agent of one node. It never blocks: the fleet's loop says when there is something to read or
room to write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence

import msgspec

from flagperf import version
from flagperf.api import Node
from flagperf.errors import NodeFailed
from flagperf.messages import Message
from flagperf.spec.protocol import AgentLine, ChannelLine, Data, VersionMismatch, check_hello, encode_line, hello_line
from flagperf.units import exit_status

CHUNK_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 20
MAX_ERROR_BYTES = 1 << 20
"""How much of stderr is kept: its last part."""

KILL_SECONDS = 5.0
"""How long a cluster's own command gets to end after SIGTERM."""

HINT = "--help' for more information"
"""What docker says after the reason."""

_HELLO = b'{"flagperf":'
_decoder: msgspec.json.Decoder[AgentLine] = msgspec.json.Decoder(AgentLine)


class Channel:
    """A process and its three streams: the cluster's own command (ssh, srun), or the agent itself on this machine."""

    def __init__(self, index: int, node: Node, command: Sequence[str], clock: Callable[[], float]) -> None:
        self.index, self.node, self.command, self._clock = index, node, command, clock
        self.is_greeted = self.had_time = False
        self.heard_at = self.started_at = clock()
        self.refusal: Message | None = None
        """Why nothing more is read: the agent has another flagperf version."""
        self.errors = b""
        self._waiting = bytearray(hello_line(version()))
        self._received = bytearray()
        self._payload_bytes = 0
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops the agents
            bufsize=0,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = (
            stream.fileno() for stream in (self.process.stdin, self.process.stdout, self.process.stderr)
        )
        for stream in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(stream, False)

    @property
    def name(self) -> str:
        return node_name(self.index, self.node)

    @property
    def has_to_send(self) -> bool:
        return bool(self._waiting)

    def say(self, line: ChannelLine) -> None:
        self._waiting += encode_line(line)

    def send(self) -> None:
        """Write what there is room for. Ignore that the agent has died: the end of its stdout tells that."""
        try:
            while self._waiting:
                del self._waiting[: os.write(self.stdin, self._waiting[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting.clear()

    def receive(self) -> Iterator[AgentLine | bytes | None]:
        """Yield what has arrived: lines, the bytes of Data, and None at the end. Raise NodeFailed for what is not of
        the protocol, VersionMismatch for another version."""
        try:
            content = os.read(self.stdout, CHUNK_BYTES)
        except BlockingIOError:
            return
        self.heard_at = self._clock()
        self._received += content
        if not self.is_greeted:
            self._greet(is_end=not content)
        while self.is_greeted and self._received:
            if self._payload_bytes:
                payload = bytes(self._received[: self._payload_bytes])
                del self._received[: len(payload)]
                self._payload_bytes -= len(payload)
                yield payload
                continue
            end = self._received.find(b"\n")
            if end < 0:
                if len(self._received) > MAX_LINE_BYTES:
                    raise NodeFailed(f"the agent on {self.name} sent an invalid message")
                break
            try:
                line = _decoder.decode(bytes(self._received[:end]))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise NodeFailed(f"the agent on {self.name} sent an invalid message ({error})") from None
            del self._received[: end + 1]
            if isinstance(line, Data):
                self._payload_bytes = line.size
            else:
                yield line
        if not content:
            yield None

    def _greet(self, is_end: bool) -> None:
        """Look for the agent's hello. Skip what a login shell prints before it."""
        while (end := self._received.find(b"\n")) >= 0:
            line = bytes(self._received[: end + 1])
            del self._received[: end + 1]
            if _HELLO in line:  # the shell may not have ended its own line
                self._check(line[line.index(_HELLO) :])
                self.is_greeted = True
                return
        if not is_end and len(self._received) > MAX_LINE_BYTES:
            self._check(bytes(self._received))

    def _check(self, line: bytes) -> None:
        try:
            check_hello(line, other=self.name, own="this command", own_version=version())
        except VersionMismatch as error:
            self.refusal = error.message
            raise

    def receive_errors(self) -> bool:
        """Read from stderr. Return whether it goes on."""
        try:
            content = os.read(self.stderr, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self.errors = (self.errors + content)[-MAX_ERROR_BYTES:]
        return bool(content)

    def discard(self) -> None:
        """Read what an ending process still prints. Keep what it prints on stderr."""
        self.receive_errors()
        with contextlib.suppress(BlockingIOError):
            os.read(self.stdout, CHUNK_BYTES)

    def last_words(self, num_lines: int = 1) -> str:
        lines = [line.strip() for line in self.errors.decode(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.endswith(HINT)]
        return "; ".join(said[-num_lines:])

    def how_it_ended(self) -> str:
        code = self.process.poll()
        return "its connection was closed" if code is None else exit_status(code)

    def close_stdin(self) -> None:
        """Tell the agent to stop everything and end."""
        self._waiting.clear()
        assert self.process.stdin
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def terminate(self) -> None:
        """Send SIGTERM. On this signal alone srun also ends its step."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()

    def kill(self) -> None:
        """Kill the process and its whole session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.close_stdin()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            stream.close()
        self.process.wait()


def node_name(index: int, node: Node) -> str:
    """Return what messages call the node."""
    return f"node {index} ({node.name})"
