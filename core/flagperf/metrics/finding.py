"""What a formula gives: a value, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import msgspec

from flagperf.metrics.metric import Interval, Mark, Reason


class Found(msgspec.Struct, frozen=True):
    value: float | int
    inputs: dict[str, Any] = {}
    interval: Interval | None = None
    marks: tuple[Mark, ...] = ()


class Absent(msgspec.Struct, frozen=True):
    reason: Reason
    detail: str
    inputs: dict[str, Any] = {}


Finding = Union[Found, Absent]  # noqa: UP007  (an alias that 3.10 evaluates)
Findings = Mapping[str, Finding]
"""By metric name."""

NAMED_AT_MOST = 8


def named(kind: str, names: Sequence[object]) -> str:
    """`rank 3`, `ranks 1, 2`, `ranks 0, 1, ... and 24 more`."""
    shown = ", ".join(str(name) for name in names[:NAMED_AT_MOST])
    rest = len(names) - NAMED_AT_MOST
    return f"{kind}{'s' if len(names) > 1 else ''} {shown}{f' and {rest} more' if rest > 0 else ''}"
