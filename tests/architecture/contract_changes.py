"""What a change of the contract does to plugins that were written before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    place: str
    what: str
    breaks: bool
    """True: a plugin that was written before may stop working. False: it has nothing to do."""

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def changes(before: Any, now: Any, place: str = "") -> Iterator[Change]:
    """Between two descriptions (see contract_snapshot), in a fixed order."""
    if isinstance(before, dict) and isinstance(now, dict):
        yield from _changes_of_names(before, now, place)
    elif isinstance(before, list) and isinstance(now, list):
        yield from _changes_of_order(before, now, place)
    elif before != now:
        yield Change(place, f"{before!r} became {now!r}", breaks=True)


def _changes_of_names(before: dict[str, Any], now: dict[str, Any], place: str) -> Iterator[Change]:
    for name in before:
        inner = f"{place}.{name}".lstrip(".")
        if name not in now:
            yield Change(inner, "removed", breaks=True)
        else:
            yield from changes(before[name], now[name], inner)
    for name in now.keys() - before.keys():
        yield Change(f"{place}.{name}".lstrip("."), "added", breaks=_is_demanded(place, now[name]))


def _changes_of_order(before: list[str], now: list[str], place: str) -> Iterator[Change]:
    """Fields and parameters are also given by position: new ones follow the old ones, each with a default."""
    for index, item in enumerate(before):
        found = now[index] if index < len(now) else "nothing"
        if found != item:
            yield Change(place, f"{item!r} became {found!r}", breaks=True)
    for item in now[len(before) :]:
        yield Change(place, f"{item!r} added", breaks=" = " not in item)


def _is_demanded(place: str, description: Any) -> bool:
    """Whether plugins must give what was added: an abstract method, or an attribute without a default."""
    if place.endswith(".attributes"):
        return " = " not in description
    return place.endswith(".methods") and str(description).startswith("abstract ")
