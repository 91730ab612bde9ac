"""Context: what a case is given. The spans that a case runs in are the events that the metrics are made of.

    with ctx.training(planned_steps=n):
        for batch in ctx.batches(loader):        # waiting for data, and the copy to the device
            with ctx.step() as step:             # one optimizer step, all its micro-batches
                ...
                step.done(samples=..., loss=loss)
        with ctx.evaluation(): ...               # outside p_train and p_core
    ctx.report(acc=...)

What the context does between steps (reading losses, writing lines) is the logging span. Nothing is written, and no
loss is read, inside a step.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from flagperf.api import Activation, DeviceBackend, Precision, TimingEvent
from flagperf.events import (
    DataDescribed,
    Evaluated,
    EvaluationAdvanced,
    Event,
    Logged,
    ModelDescribed,
    PartsReported,
    Reported,
    StepFinished,
    TrainingBegan,
    TrainingEnded,
    WarmupEnded,
)
from flagperf.worker.collectives import sum_over_ranks

if TYPE_CHECKING:
    from accelerate import Accelerator

FLUSH_SECONDS = 1.0
"""Steps are written at most this often: one write costs about 0.1 ms, and live progress needs no more."""


class EventSink(Protocol):
    def write(self, *events: Event) -> None: ...


class Context:
    def __init__(
        self,
        *,
        backend: DeviceBackend,
        activation: Activation,
        precision: Precision,
        config: dict[str, Any],
        sink: EventSink,
        rank: int = 0,
        world_size: int = 1,
        data_dir: Path | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self.config: Any = _namespace(config)
        """The resolved values of the case, by attribute: ctx.config.training.batch_size."""
        self.precision = precision
        self.rank = rank
        self.world_size = world_size
        self.device = activation.torch_device
        self.data_dir = data_dir
        self._backend = backend
        self._sink = sink
        self._clock = clock
        self._flush_ns = int(flush_seconds * 1e9)
        self._flushed_ns = 0
        measured = config.get("training") or config.get("inference") or {}
        self._warmup_steps = int(measured.get("warmup_steps", 0))
        self._num_steps = 0
        self._wait_ns = 0
        self._in_training = False
        self._in_evaluation = False
        self._in_step = False
        self._pending: list[_Measured] = []

    # --- what the case says of itself -------------------------------------------------------------------------------

    def describe_model(self, **facts: Any) -> None:
        """The fields of events.ModelDescribed, for MFU."""
        self._sink.write(ModelDescribed(t_ns=self._clock(), **facts))

    def describe_data(self, name: str, rows: int, sha256: str) -> None:
        self._sink.write(DataDescribed(t_ns=self._clock(), name=name, rows=rows, sha256=sha256))

    def report(self, **values: float) -> None:
        """Results of the case, by the names that case.toml declares. The last report of a name counts."""
        numbers = _finite(values)
        self._report(lambda now_ns: Reported(t_ns=now_ns, step=self._num_steps, values=numbers))

    def report_parts(self, name: str, by: str, values: Mapping[str, float]) -> None:
        """What a reported value is made of: report_parts("acc", "subject", {"law": 0.4, ...}). Kept with its metric."""
        numbers = _finite(values)
        self._report(lambda now_ns: PartsReported(now_ns, step=self._num_steps, name=name, by=by, values=numbers))

    def _report(self, event_at: Callable[[int], Event]) -> None:
        if self._in_step:
            raise RuntimeError("ctx.report was called inside a step: report after it, nothing is written in a step")
        is_logging = self._in_training and not self._in_evaluation
        if is_logging:
            self._backend.synchronize()
        began_ns = self._clock()
        self._sink.write(event_at(began_ns))
        if is_logging:
            self._sink.write(Logged(t_ns=self._clock(), began_ns=began_ns))

    # --- helpers that every case needs ------------------------------------------------------------------------------

    def accelerator(self, **arguments: Any) -> Accelerator:
        """An Accelerator for this device and precision that is known to span all ranks."""
        from flagperf.worker.accelerator import make_accelerator

        return make_accelerator(self._backend, self.precision, self.world_size, self.device, **arguments)

    def sum_over_ranks(self, *values: float) -> list[float]:
        """Element-wise sums over all ranks, the same on every rank. Exact for whole numbers below 2**53."""
        return sum_over_ranks(values, self.world_size, self.device)

    # --- spans ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def training(self, planned_steps: int | None = None) -> Iterator[None]:
        """The published training span. `planned_steps` is for progress only."""
        self._backend.synchronize()
        self._in_training = True
        self._wait_ns = 0
        self._flushed_ns = self._clock()
        self._sink.write(TrainingBegan(t_ns=self._flushed_ns, planned_steps=planned_steps))
        yield
        self._backend.synchronize()
        ended_ns = self._clock()
        self._in_training = False
        self._sink.write(*self._take_pending(), TrainingEnded(t_ns=ended_ns))

    def inference(self, planned_steps: int | None = None) -> contextlib.AbstractContextManager[None]:
        """The published span of an inference case: its loop over the data, a step for each batch."""
        return self.training(planned_steps)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, on the device."""
        began_ns = self._clock()
        for batch in loader:
            on_device = _to_device(batch, self.device)
            self._wait_ns += self._clock() - began_ns
            yield on_device
            began_ns = self._clock()

    def step(self) -> Step:
        return Step(self._backend, self._clock, self._begin_step, self._finish_step)

    @contextlib.contextmanager
    def evaluation(self, planned_rows: int | None = None) -> Iterator[Evaluation]:
        """`planned_rows`, of all ranks, is for progress only; the case then says what it has done."""
        self._flush()
        began_ns = self._clock()
        self._in_evaluation, wait_ns = True, self._wait_ns
        yield Evaluation(self._sink, self._clock, self._flush_ns, planned_rows, self.world_size)
        self._backend.synchronize()
        self._in_evaluation, self._wait_ns = False, wait_ns  # batches of an evaluation are not the next step's wait
        self._sink.write(Evaluated(t_ns=self._clock(), began_ns=began_ns, step=self._num_steps))

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._in_step = True

    def _finish_step(self, measured: _Measured) -> None:
        self._in_step = False
        self._num_steps += 1
        measured.step = self._num_steps
        measured.wait_ns, self._wait_ns = self._wait_ns, 0
        self._pending.append(measured)
        if self._num_steps == self._warmup_steps:
            self._flush()
            self._sink.write(WarmupEnded(t_ns=self._clock(), step=self._num_steps))
        elif measured.ended_ns - self._flushed_ns > self._flush_ns:
            self._flush()

    def _flush(self) -> None:
        """Wait for the device first: that time belongs to the steps. Only what follows is logging."""
        self._backend.synchronize()
        began_ns = self._clock()
        pending = self._take_pending()
        if pending:
            self._sink.write(*pending)
            self._sink.write(Logged(t_ns=self._clock(), began_ns=began_ns))
        self._flushed_ns = began_ns

    def _take_pending(self) -> list[StepFinished]:
        taken, self._pending = self._pending, []
        return [measured.event() for measured in taken]


class Step:
    """One optimizer step. With timing events it never synchronises; without, exactly at both ends."""

    def __init__(
        self,
        backend: DeviceBackend,
        clock: Callable[[], int],
        begin: Callable[[], None],
        finish: Callable[[_Measured], None],
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._begin = begin
        self._finish = finish
        self._measured = _Measured()

    def done(self, *, samples: int, tokens: int = 0, padded_tokens: int = 0, loss: Any = None) -> None:
        """What the step did, on this rank: real samples, real tokens, positions that held padding, and the mean loss
        over its real samples as a detached tensor (or a number), which is read after the span."""
        measured = self._measured
        measured.counts = (samples, tokens, padded_tokens)
        measured.loss = loss

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
        if measured.counts is None:
            raise RuntimeError("a step ended without step.done(samples=...): the case has to say what the step did")
        self._finish(measured)


class Evaluation:
    """An evaluation under way. Says how far it is at most once a second, and never waits for the device."""

    def __init__(
        self, sink: EventSink, clock: Callable[[], int], pause_ns: int, planned_rows: int | None, world_size: int
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._pause_ns = pause_ns
        self._planned_rows = planned_rows
        self._world_size = world_size
        self._rows = 0
        self._began_ns = self._said_ns = clock()

    def done(self, rows: int) -> None:
        """So many more rows of this rank."""
        self._rows += rows
        now_ns = self._clock()
        if self._planned_rows is not None and now_ns - self._said_ns > self._pause_ns:
            self._said_ns = now_ns
            rows_of_all = min(self._rows * self._world_size, self._planned_rows)
            self._sink.write(EvaluationAdvanced(now_ns, self._began_ns, rows_of_all, self._planned_rows))


class _Measured:
    """A finished step whose loss and device time have not been read yet."""

    step = 0
    began_ns = 0
    ended_ns = 0
    wait_ns = 0
    counts: tuple[int, int, int] | None = None
    loss: Any = None
    began_event: TimingEvent | None = None
    ended_event: TimingEvent | None = None

    def event(self) -> StepFinished:
        assert self.counts is not None
        samples, tokens, padded_tokens = self.counts
        if self.began_event is not None and self.ended_event is not None:
            compute_ns = self.began_event.elapsed_ns(self.ended_event)
        else:
            compute_ns = self.ended_ns - self.began_ns
        loss = None if self.loss is None else float(self.loss)
        diverged = loss is not None and not math.isfinite(loss)
        return StepFinished(
            t_ns=self.ended_ns, step=self.step, began_ns=self.began_ns, compute_ns=compute_ns, wait_ns=self.wait_ns,
            samples=int(samples), tokens=int(tokens), padded_tokens=int(padded_tokens),
            loss=None if diverged else loss, diverged=diverged,
        )  # fmt: skip


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in values.items()}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"the case reported {name} = {value}; a result has to be a finite number")
    return numbers


def _to_device(value: Any, device: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _to_device(item, device) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_to_device(item, device) for item in value)
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value


def _namespace(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _namespace(item) for name, item in value.items()})
    return value
