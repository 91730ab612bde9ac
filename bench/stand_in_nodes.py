"""Agents of a thousand nodes in one process, for bench.fleet: `python -m bench.stand_in_nodes FOLDER RUN_SECONDS`.

They say what real agents say, byte for byte, after as long as a network and an ssh login take. What the command starts
for each node (`command`) stands for the ssh client: a shell that names its pid and becomes `sleep`. This process then
opens the pipes of that one's stdin and stdout, and is at their other end as the agent would be.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import itertools
import os
import random
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flagperf import version
from flagperf.api import LaunchCommand
from flagperf.bundle.paths import node_samples, rank_events
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.protocol import (
    BEAT_SECONDS,
    Beat,
    ChannelLine,
    CheckAnswer,
    CommandLine,
    Data,
    Ended,
    FilePart,
    FilesComplete,
    NodeState,
    Progress,
    RendezvousAnswer,
    Request,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
    WorkOrder,
    encode_line,
    hello_line,
)

LATENCY_SECONDS = (0.2, 0.5)
SECOND_BYTES = 205
"""What each rank adds to its events in a second, about a step; samples are as many for each card."""

PARTS_SECONDS = 5
"""As flagperf.agent.node_run has it."""

ARRIVALS, FACTS = "arrivals", "facts.json"
HOST = b"stand-in-host"
"""In the facts, for the node's own name."""

_decoder: msgspec.json.Decoder[CommandLine] = msgspec.json.Decoder(CommandLine)


def command(folder: Path, index: int) -> list[str]:
    """Neither waits for ever where this server has gone."""
    return ["sh", "-c", 'echo "$1 $$" 1<> "$0"; exec sleep 600', str(folder / ARRIVALS), str(index)]


class StandInNode:
    def __init__(self, server: Server, index: int, pid: int) -> None:
        self.server, self.index, self.pid = server, index, pid
        self.stdin = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
        self.stdout = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY)
        self._received = bytearray()
        self._is_greeted = self._has_beats = self.is_gone = False
        self.later(hello_line(version()))

    def receive(self) -> None:
        content = os.read(self.stdin, 1 << 18)
        if not content:
            self.leave()
        self._received += content
        while (end := self._received.find(b"\n")) >= 0:
            line = bytes(self._received[:end])
            del self._received[: end + 1]
            if self._is_greeted:
                self._obey(_decoder.decode(line))
            self._is_greeted = True

    def leave(self) -> None:
        self.is_gone = True
        self.server.forget(self)
        for stream in (self.stdin, self.stdout):
            os.close(stream)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def _obey(self, line: CommandLine) -> None:
        if isinstance(line, Beat) and not self._has_beats:
            self._has_beats = True
            self._beat()
        elif isinstance(line, Request):
            for seconds, content in self._answer(line.verb, line.body):
                self.later(content, seconds)

    def _beat(self) -> None:
        self.say(encode_line(Beat()))
        self.server.at(BEAT_SECONDS, lambda: None if self.is_gone else self._beat())

    def _answer(self, verb: str, body: msgspec.Raw) -> Iterator[tuple[float, bytes]]:
        if verb == "run":
            yield from self._run(msgspec.json.decode(body, type=WorkOrder))
        else:
            yield 0.0, _framed(self._content(verb, body))
        last = self.server.run_seconds + 0.001 if verb == "run" else 0.0
        yield last, encode_line(Ended(0))

    def _content(self, verb: str, body: msgspec.Raw) -> bytes:
        if verb == "describe":
            return self.server.facts.replace(HOST, b"node%05d" % self.index)
        if verb == "inspect":
            facts = msgspec.json.decode(self._content("describe", body), type=NodeFacts)
            state = NodeState(facts, "/opt/python", address="10.0.0.1", interface="ib0", shm_bytes=1 << 36)
            return b"%d\n" % time.time_ns() + msgspec.json.encode(state) + b"\n"
        if verb == "rendezvous":
            return msgspec.json.encode(RendezvousAnswer("10.0.0.1", 29500))
        if verb == "check":
            return msgspec.json.encode(CheckAnswer())
        raise ValueError(verb)

    def _run(self, order: WorkOrder) -> Iterator[tuple[float, bytes]]:
        sizes = {str(rank_events(rank)): SECOND_BYTES for rank in order.ranks}
        sizes[str(node_samples(order.node_index))] = SECOND_BYTES * len(order.ranks)
        yield 0.0, _line(WorkersLaunchedMessage(time.monotonic_ns(), LaunchCommand(("torchrun",))))
        for second in range(1, self.server.run_seconds):
            yield second, _line(Progress(second * 7, 1000, 812.5, 0.6931, 40 << 30, 60.0, "training"))
            for path, size in sizes.items() if second % PARTS_SECONDS == 0 else ():
                yield second, _line(FilePart(path, (second - PARTS_SECONDS) * size, b" " * size * PARTS_SECONDS))
        yield self.server.run_seconds, _line(WorkersEndedMessage(time.monotonic_ns(), 0, None))
        num_seconds = (self.server.run_seconds - 1) // PARTS_SECONDS * PARTS_SECONDS
        digests = {path: hashlib.sha256(b" " * size * num_seconds).hexdigest() for path, size in sizes.items()}
        yield self.server.run_seconds, _line(FilesComplete(digests))

    def later(self, content: bytes, seconds: float = 0.0) -> None:
        self.server.at(seconds + self.server.latency(self.index), lambda: self.say(content))

    def say(self, content: bytes) -> None:
        if not self.is_gone:
            with contextlib.suppress(BrokenPipeError):
                os.write(self.stdout, content)


class Server:
    def __init__(self, folder: Path, run_seconds: int) -> None:
        self.facts, self.run_seconds = (folder / FACTS).read_bytes(), run_seconds
        self._arrivals = os.open(folder / ARRIVALS, os.O_RDWR | os.O_NONBLOCK)
        self._announced = bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._arrivals, selectors.EVENT_READ, self._on_arrival)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._planned: list[tuple[float, int, Callable[[], Any]]] = []
        self._numbers = itertools.count()

    @staticmethod
    def latency(index: int) -> float:
        """Of a node always the same, so that what it says stays in order."""
        return random.Random(index).uniform(*LATENCY_SECONDS)

    def at(self, seconds: float, act: Callable[[], Any]) -> None:
        heapq.heappush(self._planned, (time.monotonic() + seconds, next(self._numbers), act))

    def forget(self, node: StandInNode) -> None:
        self._selector.unregister(node.stdin)

    def serve(self) -> None:
        while True:
            wait = self._planned[0][0] - time.monotonic() if self._planned else 1.0
            for key, _ in self._selector.select(max(0.0, wait)):
                key.data()
            while self._planned and self._planned[0][0] <= time.monotonic():
                heapq.heappop(self._planned)[2]()

    def _on_arrival(self) -> None:
        self._announced += os.read(self._arrivals, 1 << 16)
        *lines, rest = bytes(self._announced).split(b"\n")
        self._announced = bytearray(rest)
        for line in lines:
            self._welcome(*map(int, line.split()))

    def _welcome(self, index: int, pid: int) -> None:
        """Once it is `sleep`: while the shell tells its pid, its stdout is another."""
        if Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
            self.at(0.02, lambda: self._welcome(index, pid))
            return
        node = StandInNode(self, index, pid)
        self._selector.register(node.stdin, selectors.EVENT_READ, node.receive)


def _framed(content: bytes) -> bytes:
    line: ChannelLine = Data(len(content))
    return encode_line(line) + content


def _line(message: msgspec.Struct) -> bytes:
    return _framed(msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    server = Server(Path(sys.argv[1]), int(sys.argv[2]))
    print("ready", flush=True)
    server.serve()
