"""Finding: the result of a formula, either a value or the reason why it is absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import msgspec

from flagperf.messages import Message, message
from flagperf.metrics.metric import Interval, Mark, Reason


class Found(msgspec.Struct, frozen=True):
    value: float | int
    inputs: dict[str, Any] = {}
    interval: Interval | None = None
    marks: tuple[Mark, ...] = ()


class Absent(msgspec.Struct, frozen=True):
    reason: Reason
    message: Message
    """What was observed."""
    inputs: dict[str, Any] = {}

    @property
    def detail(self) -> str:
        """The message in English."""
        return str(self.message)


Finding = Union[Found, Absent]  # noqa: UP007  (an alias that 3.10 evaluates)


def absent(reason: Reason, code: str, /, **params: Any) -> Absent:
    return Absent(reason, message(code, **params))


NAMED_AT_MOST = 8


def named(kind: str, names: Sequence[object]) -> Message:
    """`rank 3`, `ranks 1, 2`, `ranks 0, 1, ... and 24 more`. `kind` is rank, node or device."""
    shown = [name if isinstance(name, int) else str(name) for name in names[:NAMED_AT_MOST]]
    rest = len(names) - NAMED_AT_MOST
    if rest > 0:
        return message(f"name.{kind}s_and_more", names=shown, more=rest)
    return message(f"name.{kind}s" if len(names) > 1 else f"name.{kind}", names=shown)
