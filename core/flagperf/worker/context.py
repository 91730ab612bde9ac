"""Context: the object that a case works with. Its spans become the events that the metrics are computed from.

    with ctx.training(planned_steps=n):          # the measured span; ctx.inference() in a case of that kind
        for batch in ctx.batches(loader):        # waits for data and copies it to the device
            with ctx.step() as step:             # one optimizer step, all its micro-batches
                ...
                step.done(samples=..., loss=loss)
        with ctx.evaluation(): ...               # outside p_train and p_core
    ctx.report(acc=...)

Everything without a leading underscore is the API for case authors and frozen like the hooks: docs/add-a-case.md.

Work of the context between steps (reading losses, writing events) is the logging span. Inside a step nothing is written
and no loss is read.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flagperf.api import Activation, DeviceBackend, Precision
from flagperf.events import (
    DataDescribed,
    Event,
    ModelDescribed,
    PartsReported,
    Reported,
    RowMeasured,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WarmupEnded,
)
from flagperf.kinds import Kind
from flagperf.worker.collectives import sum_over_ranks
from flagperf.worker.evaluation import Evaluation, EventSink
from flagperf.worker.step import MeasuredStep, Step, checked_work

if TYPE_CHECKING:
    from accelerate import Accelerator

    from flagperf.worker.gradient_scaler import GradientScaler

FLUSH_SECONDS = 1.0
"""Minimum interval between writes of steps. One write costs about 0.1 ms, and live progress does not need more."""


class Context:
    """What a case works with, given to its function. See docs/add-a-case.md."""

    config: Any
    """The resolved values of the case as attributes: ctx.config.training.batch_size."""
    precision: Precision
    """Of the run. The adapter has set the framework's switches already."""
    rank: int
    """Of all ranks of the job."""
    world_size: int
    """Number of ranks."""
    device: str
    """What torch.device() takes."""
    data_dir: Path | None
    """--data-dir, or None: the case then uses what it generates."""

    def __init__(
        self,
        *,
        backend: DeviceBackend,
        activation: Activation,
        precision: Precision,
        kind: Kind,
        config: dict[str, Any],
        sink: EventSink,
        rank: int = 0,
        world_size: int = 1,
        data_dir: Path | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self.config = _namespace(config)
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
        self._kind = kind
        self._warmup_steps = int(config.get(kind.values, {}).get("warmup_steps", 0))
        self._num_steps = 0
        self._wait_ns = 0
        self._in_measured = False
        self._in_pause = False
        self._in_step = False
        self._pending: list[MeasuredStep] = []

    # --- what the case reports --------------------------------------------------------------------------------------

    def describe_model(self, **facts: Any) -> None:
        """Takes the fields of events.ModelDescribed. Needed for MFU."""
        self._sink.write(ModelDescribed(t_ns=self._clock(), **facts))

    def describe_data(self, name: str, rows: int, sha256: str) -> None:
        self._sink.write(DataDescribed(t_ns=self._clock(), name=name, rows=rows, sha256=sha256))

    def report(self, **values: float) -> None:
        """Report results by the names declared in case.toml. The last report of a name counts."""
        numbers = _finite(values)
        self._report(lambda now_ns: Reported(t_ns=now_ns, step=self._num_steps, values=numbers))

    def report_parts(self, name: str, by: str, values: Mapping[str, float]) -> None:
        """Report a breakdown of a value: report_parts("acc", "subject", {"law": 0.4, ...}). Stored with its metric."""
        numbers = _finite(values)
        self._report(lambda now_ns: PartsReported(now_ns, step=self._num_steps, name=name, by=by, values=numbers))

    def _report(self, event_at: Callable[[int], Event]) -> None:
        if self._in_step:
            raise RuntimeError("ctx.report was called inside a step: report after it, nothing is written in a step")
        is_logging = self._in_measured and not self._in_pause
        if is_logging:
            self._backend.synchronize()
        began_ns = self._clock()
        self._sink.write(event_at(began_ns))
        if is_logging:
            self._sink.write(self._ended("logging", began_ns))

    # --- helpers that every case needs ------------------------------------------------------------------------------

    def accelerator(self, **arguments: Any) -> Accelerator:
        """An Accelerator for this device and precision. It is checked to span all ranks."""
        from flagperf.worker.accelerator import make_accelerator

        return make_accelerator(self._backend, self.precision, self.world_size, self.device, **arguments)

    def gradient_scaler(self) -> GradientScaler:
        """Dynamic loss scaling, enabled where this precision computes in float16. For a case that does not call
        accelerator.backward, which scales by itself. Since HOOK_API 2."""
        import torch

        from flagperf.worker.gradient_scaler import GradientScaler

        return GradientScaler(torch.device(self.device).type, enabled=self.precision.compute == "float16")

    def sum_over_ranks(self, *values: float) -> list[float]:
        """Element-wise sums over all ranks, the same on every rank. Exact for integers below 2**53."""
        return sum_over_ranks(values, self.world_size, self.device)

    # --- spans ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def training(self, planned_steps: int | None = None) -> Iterator[None]:
        """The measured span of a case of kind `training`. `planned_steps` is for progress only."""
        with self._of_kind("training", planned_steps):
            yield

    def inference(self, planned_steps: int | None = None) -> contextlib.AbstractContextManager[None]:
        """The measured span of a case of kind `inference`: its loop over the data, one step per batch."""
        return self._of_kind("inference", planned_steps)

    def _of_kind(self, name: str, planned_steps: int | None) -> contextlib.AbstractContextManager[None]:
        if name != self._kind.name:
            raise RuntimeError(f"ctx.{name}() was called by a case of kind {self._kind.name!r}, as case.toml says")
        return self.measured(planned_steps)

    @contextlib.contextmanager
    def measured(self, planned_steps: int | None = None) -> Iterator[None]:
        """The measured span of a case of any kind."""
        self._backend.synchronize()
        self._in_measured = True
        self._wait_ns = 0
        self._flushed_ns = began_ns = self._clock()
        self._sink.write(SpanBegan(began_ns, self._kind.name, planned_steps))
        yield
        self._backend.synchronize()
        ended_ns = self._clock()
        self._in_measured = False
        self._sink.write(*self._take_pending(), SpanEnded(ended_ns, self._kind.name, began_ns, self._num_steps))

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Any other named part of the run, such as loading or compiling. Inside the measured span, spans that the kind
        lists as pauses do not count as work."""
        self._flush()
        began_ns = self._clock()
        was_in_pause, wait_ns = self._in_pause, self._wait_ns
        self._in_pause = True
        yield
        self._backend.synchronize()
        self._in_pause, self._wait_ns = was_in_pause, wait_ns  # its batches do not delay the next step
        self._sink.write(self._ended(name, began_ns))

    def row(
        self,
        name: str,
        labels: Mapping[str, object],
        values: Sequence[float],
        unit: str,
        problem: str = "",
        **work: int,
    ) -> None:
        """Record one row of a table of measurements with all repeats: row("copy", {"bytes": 1 << 20}, seconds, "s").
        Rows with the same name have the same labels and unit. `work` is the work of one repeat, with keys from
        events.WORK. If a row could not be measured, pass no values and a `problem`."""
        texts = {key: str(label) for key, label in labels.items()}
        numbers = tuple(map(float, values))
        amounts = checked_work(work)
        self._report(lambda now_ns: RowMeasured(now_ns, name, texts, unit, numbers, amounts, problem))

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of the loader, copied to the device."""
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
        """`planned_rows` is the total over all ranks. It is used only for progress, which the case then reports."""
        with self.span("evaluation"):
            yield Evaluation(self._sink, self._clock, self._flush_ns, planned_rows, self.world_size)

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._in_step = True

    def _finish_step(self, measured: MeasuredStep) -> None:
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
        """Synchronise first: that time belongs to the steps. Only the time after it is logging."""
        self._backend.synchronize()
        began_ns = self._clock()
        pending = self._take_pending()
        if pending:
            self._sink.write(*pending)
            self._sink.write(self._ended("logging", began_ns))
        self._flushed_ns = began_ns

    def _take_pending(self) -> list[StepFinished]:
        taken, self._pending = self._pending, []
        return [measured.event() for measured in taken]

    def _write_finished_steps(self) -> None:
        """Called when the case has failed. A step whose loss or time cannot be read any more raises."""
        taken, self._pending = self._pending, []
        if taken:
            self._backend.synchronize()
        for measured in taken:
            self._sink.write(measured.event())

    def _ended(self, name: str, began_ns: int) -> SpanEnded:
        return SpanEnded(self._clock(), name, began_ns, self._num_steps)


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in values.items()}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"the case reported {name} = {value}; a result must be a finite number")
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
