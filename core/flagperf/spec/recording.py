"""RankOperators: the operator calls that one rank of a run has recorded."""

from __future__ import annotations

import msgspec

from flagperf.api import OperatorCall, RecordedTensor
from flagperf.messages import Message


class RankOperators(msgspec.Struct, frozen=True):
    """What one rank writes."""

    schema: int
    rank: int
    torch: str
    """Version."""
    steps: int
    """How many were recorded."""
    planned_steps: int
    """How many were to be recorded."""
    tensors: list[RecordedTensor] = []
    calls: list[OperatorCall] = []
    problem: Message | None = None
    """Why there are no steps, or fewer."""
