"""Timed: one thing to be timed, as a case describes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec


class WrongOutput(Exception):
    """Raised by `Timed.check`: the row is `invalid`, and its figures are not shown."""


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to be timed, with its operands on the device."""

    call: Callable[[], Any]
    """Issues the work and does not wait for it. Gives the output."""
    check: Callable[[Any], dict[str, str]]
    """Looks at the output of the last timed call and gives facts for the row, such as its error and the tolerance.
    Raises WrongOutput."""
    flops: int = 0
    """Of one call."""
    bytes: int = 0
    """That one call has to move at least."""
    bus_bytes: int = 0
    """That one call has to move at least over the links of this device, in the direction that has more of them."""
    limits: dict[str, str] = {}
    """What bounds the work: {"flops": "bf16", "bytes": "memory_bandwidth"}. Values are rows of the card's peaks."""
    before: Callable[[], None] | None = None
    """Called before every sample and not timed: new inputs, a flushed cache. A sample is then a single call, unless
    there is more than one in `calls_per_before`."""
    calls_per_before: int = 1
    """So many calls, at most, may follow one `before`: they have inputs of their own, say."""
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Calls are made inside of it, block by block of samples; neither its begin nor its end is timed. Alternatives that
    take turns may each have settings of their own."""
