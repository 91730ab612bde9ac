"""EventWriter, EventFile, events by type, Span."""

from __future__ import annotations

import contextlib
import functools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from flagperf.errors import BadInput
from flagperf.events import EVENT_SCHEMA, AnyEvent, Clock, Event, ProbeEnded, WorkerEnded
from flagperf.files import read_regular
from flagperf.units import SECOND_NS

# Append-only event files: one JSON object per line. A truncated last line (torn write) is flagged and skipped.


MAX_EVENT_BYTES = 2 << 30
"""About ten million steps. A file is in memory as a whole while it is read."""

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder() -> msgspec.json.Decoder[AnyEvent]:
    """Create it when it is needed: this takes longer than everything else in most commands."""
    return msgspec.json.Decoder(AnyEvent)


class EventWriter:
    """Writes whole lines. Each `write` reaches the kernel, so a killed process loses at most the current line.

    Unbuffered, so that `close` does not retry a write that failed on a full disk.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self.num_events = 0
        """The number of events written so far."""

    def write(self, *events: Event) -> None:
        whole = self._file.tell()
        left = memoryview(b"".join(_encoder.encode(event) + b"\n" for event in events))
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(whole)  # remove the torn line, so that later lines stay readable
            raise
        self.num_events += len(events)

    def end(self, event: WorkerEnded | ProbeEnded) -> None:
        """Write the last event, with the number of those before it."""
        self.write(msgspec.structs.replace(event, num_before=self.num_events))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EventFile(msgspec.Struct, frozen=True):
    """The content of an event file. `torn` is true if its last line was truncated."""

    events: tuple[AnyEvent, ...]
    torn: bool = False


def decode_events(lines: Sequence[bytes], origin: str) -> EventFile:
    """Decode the lines of a file. A line that cannot be decoded is an error, except a last line without newline: its
    process died while writing."""
    schema = EVENT_SCHEMA
    with contextlib.suppress(*_UNDECODABLE):  # decoding the line reports what is wrong with it
        schema = msgspec.json.decode(lines[0], type=_Head).schema if lines else EVENT_SCHEMA
    if schema != EVENT_SCHEMA:
        expected = f"this flagperf reads {EVENT_SCHEMA}; install a newer flagperf"
        raise BadInput(f"{origin} has event schema {schema}, {expected}")
    events: list[AnyEvent] = []
    try:
        for event in map(_decoder().decode, lines):
            events.append(event)  # one by one: their number is the place of an error
    except _UNDECODABLE as error:
        number = len(events) + 1
        if number == len(lines) and not lines[-1].endswith(b"\n"):
            return EventFile(tuple(events), torn=True)
        raise BadInput(f"{origin}: line {number} is not a valid event: {error}") from None
    return EventFile(tuple(events))


def read_events(path: Path) -> EventFile:
    try:
        content = read_regular(path, MAX_EVENT_BYTES)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    found = decode_events(content.splitlines(keepends=True), str(path))
    first = max(0, len(found.events) - 2)  # the agent may have added why the process did not end in an orderly way
    for index, event in enumerate(found.events[first:], start=first):
        if isinstance(event, WorkerEnded | ProbeEnded) and event.num_before not in (None, index):
            raise BadInput(f"{path}: {index} events come before the last one, {event.num_before} were written")
    return found


class _Head(msgspec.Struct, frozen=True):
    """The schema field of a file's first line."""

    schema: int = EVENT_SCHEMA


class EventFiles:
    """Event files in the order of their names. They are read while they are iterated over, one at a time: those of a
    large run do not fit into memory together."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = sorted(paths)

    def __iter__(self) -> Iterator[EventFile]:
        return map(read_events, self._paths)


def this_clock() -> Clock:
    import datetime  # lazy, both: commands that only list things import this module
    import socket

    boot_id = Path("/proc/sys/kernel/random/boot_id")
    return Clock(
        host=socket.gethostname(),
        boot_id=boot_id.read_text().strip() if boot_id.exists() else "",
        pid=os.getpid(),
        wall=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
    )


# Events of a file by their type.


E = TypeVar("E")


def of_type(events: Iterable[AnyEvent], kind: type[E]) -> tuple[E, ...]:
    return tuple(event for event in events if isinstance(event, kind))


class EventsByType:
    """All types at once, for long files: `events[StepFinished]`. Each type is in the order of the file."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self._events: defaultdict[type, list[Any]] = defaultdict(list)
        for event in events:
            self._events[type(event)].append(event)

    def __getitem__(self, kind: type[E]) -> list[E]:
        return self._events.get(kind, [])


# Span: from one moment to another, on one clock.


class Span(msgspec.Struct, frozen=True):
    began_ns: int
    ended_ns: int

    @property
    def length_ns(self) -> int:
        return self.ended_ns - self.began_ns

    @property
    def seconds(self) -> float:
        return self.length_ns / SECOND_NS
