"""Events of a file by their type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeVar

from flagperf.events import AnyEvent

E = TypeVar("E")


def of(events: Iterable[AnyEvent], kind: type[E]) -> tuple[E, ...]:
    return tuple(event for event in events if isinstance(event, kind))


class EventsByType:
    """All types at once, where a file is long: `events[StepFinished]`. Each type in the order of the file."""

    def __init__(self, events: Iterable[AnyEvent]) -> None:
        self._events: defaultdict[type, list[Any]] = defaultdict(list)
        for event in events:
            self._events[type(event)].append(event)

    def __getitem__(self, kind: type[E]) -> list[E]:
        return self._events.get(kind, [])
