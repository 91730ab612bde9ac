"""Step, MeasuredStep, RecordedStep."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from flagperf.api import DeviceBackend, TimingEvent
from flagperf.api.operator_calls import RECORDING_SCHEMA, RankOperators
from flagperf.events import WORK, StepFinished
from flagperf.messages import Message, message

if TYPE_CHECKING:
    from flagperf.worker.operator_recorder import OperatorRecorder

# Step: one optimizer step of a rank, timed by device events or between two synchronisations.


class Step:
    """One optimizer step. It synchronises the device only if there are no timing events, once at each end."""

    def __init__(
        self,
        backend: DeviceBackend,
        clock: Callable[[], int],
        begin: Callable[[], None],
        finish: Callable[[MeasuredStep], None],
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._begin = begin
        self._finish = finish
        self._measured = MeasuredStep()

    def done(
        self,
        *,
        samples: int,
        tokens: int = 0,
        padded_tokens: int = 0,
        loss: Any = None,
        flops: int = 0,
        bytes: int = 0,
    ) -> None:
        """Report the work of this step on this rank: real samples, real tokens, padding positions, minimum FLOPs and
        bytes. `loss` is the mean over the real samples, as a detached tensor or a number; it is read after the step."""
        work = {"samples": samples, "tokens": tokens, "padded_tokens": padded_tokens, "flops": flops, "bytes": bytes}
        self._measured.work = checked_work(work)
        self._measured.loss = loss

    def __enter__(self) -> Step:
        self._begin()
        measured = self._measured
        if self._backend.has_timing_events:
            measured.began_event = self._backend.timing_event()
            measured.began_event.record()
        else:
            self._backend.synchronize()
        measured.began_ns = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return
        measured = self._measured
        if measured.began_event is not None:
            measured.ended_event = self._backend.timing_event()
            measured.ended_event.record()
        else:
            self._backend.synchronize()
        measured.ended_ns = self._clock()
        self._require_work()
        self._finish(measured)

    def _require_work(self) -> None:
        if self._measured.work is None:
            raise RuntimeError("a step ended without step.done(samples=...): the case must report what the step did")


class RecordedStep(Step):
    """A step whose operators are written down. It is not timed."""

    def __init__(
        self, recorder: AbstractContextManager[Any], begin: Callable[[], None], finish: Callable[[], None]
    ) -> None:
        self._recorder = recorder
        self._begin = begin
        self._finish_recorded = finish
        self._measured = MeasuredStep()

    def __enter__(self) -> Step:
        self._begin()
        self._recorder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.__exit__(kind, error, trace)
        if error is None:
            self._require_work()
            self._finish_recorded()


class MeasuredStep:
    """A finished step whose loss and device time have not been read yet."""

    step = 0
    began_ns = 0
    ended_ns = 0
    wait_ns = 0
    work: dict[str, int] | None = None
    loss: Any = None
    began_event: TimingEvent | None = None
    ended_event: TimingEvent | None = None

    def event(self) -> StepFinished:
        assert self.work is not None
        if self.began_event is not None and self.ended_event is not None:
            compute_ns = self.began_event.elapsed_ns(self.ended_event)
        else:
            compute_ns = self.ended_ns - self.began_ns
        loss = None if self.loss is None else float(self.loss)
        diverged = loss is not None and not math.isfinite(loss)
        return StepFinished(
            t_ns=self.ended_ns,
            step=self.step,
            began_ns=self.began_ns,
            compute_ns=compute_ns,
            wait_ns=self.wait_ns,
            work=self.work,
            loss=None if diverged else loss,
            diverged=diverged,
        )


def checked_work(work: dict[str, int]) -> dict[str, int]:
    """Return the amounts that are not zero. Raises TypeError for a name that is not in WORK."""
    unknown = [name for name in work if name not in WORK]
    if unknown:
        raise TypeError(f"unknown amount of work {unknown[0]!r}; known: {', '.join(WORK)}")
    return {name: int(amount) for name, amount in work.items() if int(amount)}


# RecordedSteps: which steps of a run have their operators written down, the last ones, and what comes of it.


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
        """Return how many steps will be measured, if that is known. Called when the measured span begins."""
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
        """Return True if the step after so many steps is recorded."""
        return self._first is not None and num_steps >= self._first

    def recorder(self, device: str) -> OperatorRecorder:
        if self._recorder is None:
            import torch

            from flagperf.worker.operator_recorder import OperatorRecorder

            self._recorder = OperatorRecorder(torch.device(device).type)
        return self._recorder

    def end(self, num_steps: int) -> None:
        """Take note that the case left its measured span, after so many steps."""
        if self._first is not None and self.steps < self.planned:
            planned = self._first + self.planned
            self._problem = message("recording.ended_early", done=num_steps, planned=planned, steps=self.steps)

    def operators(self, rank: int) -> bytes:
        """Return the content of the rank's file."""
        if self._recorder is not None:
            found = self._recorder.operators(rank, self.steps, self.planned, self._problem)
        else:
            why = self._problem or message("recording.no_span")
            found = RankOperators(RECORDING_SCHEMA, rank, "", 0, self.planned, problem=why)
        return msgspec.json.encode(found)
