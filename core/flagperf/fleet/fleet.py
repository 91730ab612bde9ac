"""Fleet: the agents of an allocation, all served by one loop, without threads.

`ask_all` puts a question to all nodes at once, each with the same time limit. A run takes longer: its caller asks, and
then takes what arrives (`poll`) as it comes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from flagperf.api import Allocation
from flagperf.errors import BadInput, FlagPerfError, NodeFailed
from flagperf.fleet.channel import KILL_SECONDS, Channel, node_name
from flagperf.kit import module_command
from flagperf.messages import Message
from flagperf.plugins.loading import WITHOUT
from flagperf.spec.protocol import BEAT_SECONDS, SILENT_SECONDS, Beat, ChannelLine, Ended, Leaving, Request, Stop
from flagperf.units import exit_status

START_SECONDS = 60.0
"""From the start of a cluster's command to the agent's hello."""

END_SECONDS = 20.0
"""How long an agent gets to end after its stdin was closed, before its command is told to end, and then killed."""

EXPLAIN_SECONDS = 5.0
"""How long a cluster is asked about lost nodes, all questions together: many at once do not delay the end."""

T = TypeVar("T")


class Waiting:
    """The clock of a fleet's limits, and what its loops wait with. In a test, time passes when the test says so."""

    def now(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def select(self, selector: selectors.BaseSelector, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, after at most so many seconds."""
        return selector.select(seconds)


class FleetEvent(msgspec.Struct, frozen=True):
    """What a node's agent said: one of the four."""

    index: int
    content: bytes = b""
    """A part of what the verb prints."""
    ended: Ended | None = None
    """The verb's end."""
    leaving: str = ""
    """The signal by which somebody else told the agent to stop."""
    lost: NodeFailed | None = None
    """There is no agent any more; nothing follows."""


class Answers(msgspec.Struct, Generic[T], frozen=True):
    """The answers of all nodes that were asked, by their index."""

    given: dict[int, T]
    failed: dict[int, NodeFailed]

    def all(self) -> list[T]:
        """Return the answers in the order of the nodes. Raise one NodeFailed that names every node without one."""
        if self.failed:
            raise combined(self.failed)
        return [self.given[index] for index in sorted(self.given)]


def combined(failed: Mapping[int, NodeFailed], limit: int = 10) -> NodeFailed:
    """Return one error for all nodes. It says once what several nodes said."""
    texts = list(dict.fromkeys(str(error) for _, error in sorted(failed.items())))
    if len(texts) == 1:
        return next(iter(failed.values()))
    shown = texts[:limit] + ([f"and {len(texts) - limit} more nodes"] if len(texts) > limit else [])
    return NodeFailed(f"{len(failed)} nodes failed: {'; '.join(shown)}")


class Wrapping(msgspec.Struct, frozen=True):
    """How agents are put into containers."""

    python: str
    """The image's."""
    command: Callable[[int, Sequence[str]], Sequence[str]]
    """Returns what runs an agent's command in a container, from the node's index and that command."""


@contextlib.contextmanager
def open_fleet(
    allocation: Allocation, wrapping: Wrapping | None = None, waiting: Waiting | None = None
) -> Iterator[Fleet]:
    """Yield the agents of all nodes, which start as they are needed, and end them."""
    fleet = Fleet(allocation, wrapping, waiting)
    try:
        yield fleet
    finally:
        fleet.close()


class Fleet:
    def __init__(
        self, allocation: Allocation, wrapping: Wrapping | None = None, waiting: Waiting | None = None
    ) -> None:
        self.allocation, self._wrapping = allocation, wrapping
        self.waiting = waiting or Waiting()
        """The clock of all limits, also of those that callers keep while they poll."""
        self.nodes = tuple(allocation.nodes)
        self.nodes_share_host = bool(allocation.nodes_share_host)
        self.writes_here = self.nodes_share_host and wrapping is None
        """Whether agents see the command's own files, and write into the bundle itself."""
        self._channels: dict[int, Channel] = {}
        self._lost: dict[int, Channel] = {}
        self._replaced: list[Channel] = []
        """Lost ones whose node has another agent now; their processes have to end too."""
        self._speaking: dict[int, Channel] = {}
        """Those with something to send. To look at every node each time would cost nodes times messages."""
        self._leaving: dict[int, str] = {}
        """Nodes whose agent somebody else has told to stop -> the signal."""
        self._explanations: dict[int, str] = {}
        self._explaining_seconds = 0.0
        self._selector = selectors.DefaultSelector()
        self._beat_at = self._silence_at = 0.0
        # The usual soft limit of 1,024 files would end at node 337. It stays where it suffices: workers inherit it.
        num_files = 3 * len(self.nodes) + 256
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < num_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(num_files, hard), hard))

    # --- starting ---------------------------------------------------------------------------------------------------

    def command(self, index: int) -> list[str]:
        """Return the command that reaches a node's agent; a person can paste it."""
        without = os.environ.get(WITHOUT)
        command = (*module_command(self.python(index), "flagperf.agent"), "serve", *([without] if without else []))
        wrapped = command if self._wrapping is None else self._wrapping.command(index, command)
        return list(self.allocation.agent_command(self.nodes[index], list(wrapped)))

    def python(self, index: int) -> str:
        return self._wrapping.python if self._wrapping else self.nodes[index].python or sys.executable

    def start(self, indexes: Iterable[int]) -> dict[int, NodeFailed]:
        """Start the agents of these nodes that have none, as many at once as the cluster allows. Return the reason for
        each one that did not greet."""
        wanted = set(indexes)
        waiting = [index for index in sorted(wanted) if index not in self._channels]
        failed: dict[int, NodeFailed] = {}
        starting: set[int] = set()
        while waiting or starting:
            while waiting and len(starting) < max(1, self.allocation.max_starts):
                index = waiting.pop(0)
                try:
                    channel = Channel(index, self.nodes[index], self.command(index), self.waiting.now)
                except OSError as error:
                    failed[index] = NodeFailed(f"the agent on {self.name(index)} cannot be started: {error}")
                    continue
                except BadInput:  # the same for every node
                    raise
                except FlagPerfError as error:
                    failed[index] = NodeFailed(str(error))
                    continue
                starting.add(index)
                self._channels[index] = self._speaking[index] = channel
                self._leaving.pop(index, None)
                if index in self._lost:
                    self._replaced.append(self._lost.pop(index))
                self._selector.register(channel.stdout, selectors.EVENT_READ, (channel, "stdout"))
                self._selector.register(channel.stderr, selectors.EVENT_READ, (channel, "stderr"))
            for event in self.poll(1.0):
                if event.lost is not None and event.index in wanted:
                    failed[event.index] = event.lost
            starting -= set(failed)
            starting = {index for index in starting if not self._channels[index].is_greeted}
            latest = self.waiting.now() - START_SECONDS
            for index in [each for each in starting if self._channels[each].started_at < latest]:
                failed[index] = NodeFailed(f"{self.name(index)} did not answer within {START_SECONDS:g} s")
                starting.discard(index)
                self.drop(index, had_time=True)
        return {**failed, **self._leavers(wanted)}

    # --- asking -----------------------------------------------------------------------------------------------------

    def ask_all(
        self,
        verb: str,
        requests: Mapping[int, Any],
        answer: type[T],
        timeout_seconds: float,
        take: Callable[[int, bytes], None] | None = None,
    ) -> Answers[T]:
        """Ask these nodes at once. With `take`, hand the content over as it comes; the answer is then None."""
        failed = self.start(requests)
        open_ones = {index for index in requests if index not in failed}
        for index in open_ones:
            self.request(index, verb, requests[index])
        contents: dict[int, bytearray] = {index: bytearray() for index in open_ones}
        ended: dict[int, Ended] = {}
        deadline = self.waiting.now() + timeout_seconds
        while open_ones:
            for event in self.poll(max(0.0, deadline - self.waiting.now())):
                if event.index not in requests:  # one that has gone meanwhile is started again when it is asked
                    continue
                if event.lost is not None:
                    failed[event.index] = event.lost
                elif event.ended is not None:
                    ended[event.index] = event.ended
                elif event.content and take is not None:
                    take(event.index, event.content)
                elif event.content:
                    contents[event.index] += event.content
                if event.lost is not None or event.ended is not None:
                    open_ones.discard(event.index)
            leavers = self._leavers(index for index in contents if index not in ended or ended[index].code)
            failed.update(leavers)
            open_ones -= set(leavers)
            ended = {index: end for index, end in ended.items() if index not in leavers}
            if self.waiting.now() >= deadline:
                for index in sorted(open_ones):
                    failed[index] = NodeFailed(f"{self.name(index)} did not answer `{verb}` in {timeout_seconds:g} s")
                    self.drop(index)
                open_ones.clear()
        given: dict[int, T] = {}
        for index, end in ended.items():
            agent = f"the agent on {self.name(index)}"
            if end.code:
                failed[index] = NodeFailed(f"{agent} failed: {end.error or exit_status(end.code)}")
                continue
            try:
                given[index] = msgspec.json.decode(b"null" if take else contents[index], type=answer)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                failed[index] = NodeFailed(f"{agent} gave an invalid answer to `{verb}` ({error})")
        return Answers(given, failed)

    def _leavers(self, indexes: Iterable[int]) -> dict[int, NodeFailed]:
        """Drop those of these nodes whose agent somebody else has told to stop. Return the reason for each."""
        found = {}
        for index in sorted(self._leaving.keys() & set(indexes)):
            why = NodeFailed(f"the agent on {self.name(index)} was told to stop by {self._leaving[index]}")
            self.drop(index)
            found[index] = self._with_explanation(index, why)
        return found

    def request(self, index: int, verb: str, body: Any) -> None:
        self._say(self._channels[index], Request(verb, msgspec.Raw(msgspec.json.encode(body))))

    def stop(self, index: int) -> None:
        """Tell a node to end the verb at work. Its Ended follows."""
        if index in self._channels:
            self._say(self._channels[index], Stop())

    def _say(self, channel: Channel, line: ChannelLine) -> None:
        channel.say(line)
        self._speaking[channel.index] = channel

    # --- the loop ---------------------------------------------------------------------------------------------------

    def poll(self, timeout_seconds: float) -> list[FleetEvent]:
        """Send what there is room for, and return what has arrived, after at most this time, and at most a second."""
        now = self.waiting.now()
        if not self.nodes_share_host and now >= self._beat_at:  # on this machine the end of stdin always arrives
            self._beat_at = now + BEAT_SECONDS
            for channel in self._channels.values():
                if channel.is_greeted and not channel.has_to_send:
                    self._say(channel, Beat())
        for channel in list(self._speaking.values()):
            channel.send()
            is_watched = channel.stdin in self._selector.get_map()
            if channel.has_to_send and not is_watched:
                self._selector.register(channel.stdin, selectors.EVENT_WRITE, (channel, "stdin"))
            elif not channel.has_to_send:
                del self._speaking[channel.index]
                if is_watched:
                    self._selector.unregister(channel.stdin)
        events: list[FleetEvent] = []
        ready, now = self.waiting.select(self._selector, min(timeout_seconds, 1.0)), self.waiting.now()
        for key, _ in ready:
            channel, stream = key.data
            if channel.index not in self._channels or self._channels[channel.index] is not channel:
                continue
            if stream == "stdin":
                channel.send()
            elif stream == "stderr":
                if not channel.receive_errors():
                    self._selector.unregister(channel.stderr)
            else:
                events += self._received(channel)
        # At `now`, the last look at all of them: what came in while one was served is not read yet.
        if not self.nodes_share_host and now >= self._silence_at:
            self._silence_at = now + 1.0
            for channel in list(self._channels.values()):
                if channel.is_greeted and channel.heard_at < now - SILENT_SECONDS:
                    why = NodeFailed(f"nothing was heard from {channel.name} for {SILENT_SECONDS:g} s")
                    events.append(self._lose(channel, why))
        return events

    def _received(self, channel: Channel) -> list[FleetEvent]:
        events = []
        try:
            for line in channel.receive():
                if line is None:
                    events.append(self._lose(channel, self._why_ended(channel)))
                elif isinstance(line, bytes):
                    events.append(FleetEvent(channel.index, content=line))
                elif isinstance(line, Ended):
                    events.append(FleetEvent(channel.index, ended=line))
                elif isinstance(line, Leaving):
                    self._leaving[channel.index] = line.signal
                    events.append(FleetEvent(channel.index, leaving=line.signal))
        except NodeFailed as error:
            events.append(self._lose(channel, error))
        return events

    # --- ending -----------------------------------------------------------------------------------------------------

    def _lose(self, channel: Channel, why: NodeFailed) -> FleetEvent:
        self._forget(channel)
        return FleetEvent(channel.index, lost=self._with_explanation(channel.index, why))

    def _with_explanation(self, index: int, why: NodeFailed) -> NodeFailed:
        explained = self.explained(index)
        return NodeFailed(f"{why}. {explained}") if explained else why

    def explained(self, index: int) -> str:
        """Return what the cluster knows about a lost node, or an empty text. Return what it said before once
        EXPLAIN_SECONDS were spent on questions."""
        if self._explaining_seconds < EXPLAIN_SECONDS:
            began = self.waiting.now()
            try:
                self._explanations[index] = self.allocation.explain(self.nodes[index])
            except FlagPerfError as error:
                self._explanations[index] = str(error)
            self._explaining_seconds += self.waiting.now() - began
        return self._explanations.get(index, "")

    def _why_ended(self, channel: Channel) -> NodeFailed:
        """Return the reason that its stderr gives, which may end a moment later, or else its exit code."""
        # On this machine stderr is read to its end: the agent's watchdog holds it open while it works. A cluster's own
        # command has said all once it has ended; others may hold its stderr open for hours (a shared connection).
        deadline = self.waiting.now() + (END_SECONDS if self.nodes_share_host else KILL_SECONDS)
        while self.waiting.now() < deadline and channel.stderr in self._selector.get_map():
            has_said_all = not self.nodes_share_host and channel.process.poll() is not None
            if not channel.receive_errors() or has_said_all:
                break
            self.waiting.sleep(0.02)
        words = channel.last_words(1 if channel.is_greeted else 2)  # after the reason srun says that its task has ended
        if not words:
            self._await_ends([channel], 1.0)  # a process ends a moment after its streams
        if not channel.is_greeted:
            what = "cannot be reached, or has no such flagperf"
            return NodeFailed(f"{channel.name} {what}: {words or channel.how_it_ended()}")
        how = f": {words}" if words else f" ({channel.how_it_ended()})"
        return NodeFailed(f"the agent on {channel.name} ended{how}")

    def _forget(self, channel: Channel) -> None:
        for stream in (channel.stdin, channel.stdout, channel.stderr):
            if stream in self._selector.get_map():
                self._selector.unregister(stream)
        self._channels.pop(channel.index, None)
        self._speaking.pop(channel.index, None)
        self._lost[channel.index] = channel
        channel.close_stdin()

    def drop(self, index: int, *, had_time: bool = False) -> None:
        """End the agent of this node. `had_time`: it was told to stop before, and did not."""
        if index in self._channels:
            channel = self._channels[index]
            channel.had_time = had_time
            self._forget(channel)

    def close(self) -> None:
        """End all agents, which stop what they started; kill the ones that do not end."""
        for channel in list(self._channels.values()):
            channel.had_time = not channel.is_greeted  # it has started nothing that could end in order
            self._forget(channel)
        channels = [*self._replaced, *self._lost.values()]
        self._await_ends([channel for channel in channels if not channel.had_time], END_SECONDS)
        for act, seconds in ((Channel.terminate, KILL_SECONDS), (Channel.kill, KILL_SECONDS)):
            for channel in channels:
                if channel.process.poll() is None:
                    act(channel)
            self._await_ends(channels, seconds)
        for channel in channels:
            channel.discard()  # what it said at its very end
            channel.close()
        self._lost.clear()
        self._replaced.clear()
        self._selector.close()

    def _await_ends(self, channels: Sequence[Channel], seconds: float) -> None:
        deadline = self.waiting.now() + seconds
        left = [channel for channel in channels if channel.process.poll() is None]
        while left and self.waiting.now() < deadline:
            for channel in left:
                channel.discard()  # it might wait for somebody to read it
            self.waiting.sleep(0.01)
            left = [channel for channel in left if channel.process.poll() is None]

    def reached(self) -> list[int]:
        """Return the nodes whose agents are there."""
        return sorted(self._channels)

    def errors(self, index: int) -> bytes:
        """Return the end of what a node's agent printed on stderr."""
        channel = self._channels.get(index) or self._lost.get(index)
        return channel.errors if channel else b""

    def refusal(self, index: int) -> Message | None:
        """Return why this command and a node's agent do not understand each other: their versions differ."""
        channel = self._channels.get(index) or self._lost.get(index)
        return channel.refusal if channel else None

    def name(self, index: int) -> str:
        """Return what messages call the node."""
        return node_name(index, self.nodes[index])
