"""What the agents of a fleet say, as its callers get it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from flagperf.errors import NodeFailed
from flagperf.spec.channel import Ended

T = TypeVar("T")


class FleetEvent(msgspec.Struct, frozen=True):
    """What a node's agent said. One of the four is given."""

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
    """Of all nodes that were asked, by their index."""

    given: dict[int, T]
    failed: dict[int, NodeFailed]

    def all(self) -> list[T]:
        """Raises one message that names every node that has none."""
        if self.failed:
            raise combined(self.failed)
        return [self.given[index] for index in sorted(self.given)]


def combined(failed: Mapping[int, NodeFailed], limit: int = 10) -> NodeFailed:
    """The same words of several nodes are said once."""
    texts = list(dict.fromkeys(str(error) for _, error in sorted(failed.items())))
    if len(texts) == 1:
        return next(iter(failed.values()))
    shown = texts[:limit] + ([f"and {len(texts) - limit} more nodes"] if len(texts) > limit else [])
    return NodeFailed(f"{len(failed)} nodes failed: {'; '.join(shown)}")
