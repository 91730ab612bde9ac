"""RecordedSteps: which steps of a run have their operators written down, the last ones, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from flagperf.api.recording import RECORDING_SCHEMA
from flagperf.messages import Message, message
from flagperf.spec import RankOperators

if TYPE_CHECKING:
    from flagperf.worker.recording import OperatorRecorder


class RecordedSteps:
    """The case is not asked: the last of the steps that it plans are not measured but recorded. Where it plans none, or
    too few, all are measured, and the recording says why it is empty."""

    def __init__(self, planned: int) -> None:
        self.planned = planned
        """0: nothing is recorded."""
        self.steps = 0
        """Recorded so far."""
        self._first: int | None = None
        self._recorder: OperatorRecorder | None = None
        self._problem: Message | None = None

    def plan(self, planned_steps: int | None, warmup_steps: int) -> int | None:
        """Called when the measured span begins. Gives how many steps will be measured, where that is known."""
        if not self.planned:
            return planned_steps
        needed = warmup_steps + 1 + self.planned
        if planned_steps is None:
            self._problem = message("recording.no_plan")
            return None
        if planned_steps < needed:
            self._problem = message(
                "recording.too_few_steps", planned=planned_steps, needed=needed, warmup=warmup_steps, steps=self.planned
            )
            return planned_steps
        self._first = planned_steps - self.planned
        return self._first

    def is_due(self, num_steps: int) -> bool:
        """Whether the step after so many steps is recorded."""
        return self._first is not None and num_steps >= self._first

    def recorder(self, device: str) -> OperatorRecorder:
        if self._recorder is None:
            import torch

            from flagperf.worker.recording import OperatorRecorder

            self._recorder = OperatorRecorder(torch.device(device).type)
        return self._recorder

    def end(self, num_steps: int) -> None:
        """Called when the case leaves its measured span, after so many steps."""
        if self._first is not None and self.steps < self.planned:
            planned = self._first + self.planned
            self._problem = message("recording.ended_early", done=num_steps, planned=planned, steps=self.steps)

    def operators(self, rank: int) -> bytes:
        """The content of the rank's file."""
        if self._recorder is not None:
            found = self._recorder.operators(rank, self.steps, self.planned, self._problem)
        else:
            why = self._problem or message("recording.no_span")
            found = RankOperators(RECORDING_SCHEMA, rank, "", 0, self.planned, problem=why)
        return msgspec.json.encode(found)
