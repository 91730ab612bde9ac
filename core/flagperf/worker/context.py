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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from flagperf.api import Activation, DeviceBackend, OperatorLibrary, Precision, Recording, precision
from flagperf.errors import Unsupported
from flagperf.events import (
    DataDescribed,
    EvaluationAdvanced,
    Event,
    ModelDescribed,
    PartsReported,
    Reported,
    RowMeasured,
    RowStatus,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WarmupEnded,
)
from flagperf.kinds import Kind
from flagperf.worker.rank_sync import Ranks, gather_over_ranks, sum_over_ranks
from flagperf.worker.row_timing import Alternative, Prepare, RowTable
from flagperf.worker.step_timing import MeasuredStep, RecordedStep, RecordedSteps, Step, checked_work
from flagperf.worker.timer import MeasureRules

if TYPE_CHECKING:
    from accelerate import Accelerator

    from flagperf.worker.accelerator import GradientScaler

# What a case is given and gives, in the form that it is used in.


def finite(values: Mapping[str, float]) -> dict[str, float]:
    numbers = {name: float(value) for name, value in values.items()}
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"the case reported {name} = {value}; a result must be a finite number")
    return numbers


def to_device(value: Any, device: str) -> Any:
    """Copy the tensors of a batch, however it is nested."""
    if isinstance(value, Mapping):
        return {name: to_device(item, device) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(item, device) for item in value)
    return value.to(device, non_blocking=True) if hasattr(value, "to") else value


def namespace(value: Any) -> Any:
    """Return a tree of values as attributes."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: namespace(item) for name, item in value.items()})
    return value


# Evaluation: reports the progress of an evaluation.


class EventSink(Protocol):
    def write(self, *events: Event) -> None: ...


class Evaluation:
    """A running evaluation. Reports progress at most once per second and never synchronises the device."""

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
        """Report that this rank has evaluated `rows` more rows."""
        self._rows += rows
        now_ns = self._clock()
        if self._planned_rows is not None and now_ns - self._said_ns > self._pause_ns:
            self._said_ns = now_ns
            rows_of_all = min(self._rows * self._world_size, self._planned_rows)
            self._sink.write(EvaluationAdvanced(now_ns, self._began_ns, rows_of_all, self._planned_rows))


FLUSH_SECONDS = 1.0
"""Minimum interval between writes of steps. One write costs about 0.1 ms, and live progress does not need more."""


class Context:
    """The object that a case's function is given and works with. See docs/add-a-case.md."""

    config: Any
    """The resolved values of the case as attributes: ctx.config.training.batch_size."""
    precision: Precision
    """The run's precision. The adapter has set the framework's switches already."""
    rank: int
    """Number of this rank among all ranks of the job."""
    world_size: int
    """Number of ranks."""
    device: str
    """The device, as torch.device() takes it."""
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
        local_rank: int = 0,
        memory_bytes: int | None = None,
        node_index: int = 0,
        libraries: Callable[[str], OperatorLibrary] | None = None,
        data_dir: Path | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        flush_seconds: float = FLUSH_SECONDS,
        recorded: RecordedSteps | None = None,
        recording: Recording | None = None,
    ) -> None:
        self.config = namespace(config)
        self.precision = precision
        self.rank = rank
        self.world_size = world_size
        self.device = activation.torch_device
        self.data_dir = data_dir
        self._recording = recording
        self._has_read_recording = False
        self._local_rank = local_rank
        self._memory_bytes = memory_bytes
        self._node_index = node_index
        self._ranks = Ranks(rank, world_size, self.device)
        self._libraries = libraries
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
        self._recorded = recorded or RecordedSteps(0)
        self._began_ns = 0
        rules = msgspec.convert(config["measure"], MeasureRules) if "measure" in config else None
        self._rows = RowTable(backend, self.device, clock, rules, self._ranks, self._write_row)

    # --- what the case reports --------------------------------------------------------------------------------------

    def describe_model(self, **facts: Any) -> None:
        """Report facts of the model, as fields of events.ModelDescribed. Needed for MFU."""
        self._sink.write(ModelDescribed(t_ns=self._clock(), **facts))

    def describe_data(self, name: str, rows: int, sha256: str) -> None:
        self._sink.write(DataDescribed(t_ns=self._clock(), name=name, rows=rows, sha256=sha256))

    def report(self, **values: float) -> None:
        """Report results by the names declared in case.toml. The last report of a name counts."""
        numbers = finite(values)
        self._report(lambda now_ns: Reported(t_ns=now_ns, step=self._num_steps, values=numbers))

    def report_parts(self, name: str, by: str, values: Mapping[str, float]) -> None:
        """Report a breakdown of a value: report_parts("acc", "subject", {"law": 0.4, ...}). Stored with its metric."""
        numbers = finite(values)
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
        """Return an Accelerator for this device and precision. It is checked to span all ranks."""
        from flagperf.worker.accelerator import make_accelerator

        return make_accelerator(self._backend, self.precision, self.world_size, self.device, **arguments)

    def gradient_scaler(self) -> GradientScaler:
        """Return dynamic loss scaling, enabled if this precision computes in float16. For a case that does not call
        accelerator.backward, which scales by itself."""
        import torch

        from flagperf.worker.accelerator import GradientScaler

        return GradientScaler(torch.device(self.device).type, enabled=self.precision.compute == "float16")

    def recording(self) -> Recording | None:
        """Return the operator calls to replay (`--from RUN`), or None."""
        self._has_read_recording = True
        return self._recording

    def cache_bytes(self) -> int | None:
        """Return the size of the device's last-level cache, or None if nobody knows."""
        return self._backend.cache_bytes()

    def memory_bytes(self) -> int | None:
        """Return the size of the device's memory, as it reports it, or None if it does not."""
        return self._memory_bytes

    def has_own_memory(self) -> bool:
        """Return False if the device's memory is the host's, and all ranks of a node share it."""
        return self._backend.memory_scope == "device"

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return True if an exception means that memory ran out, as the vendor's adapter knows."""
        return self._backend.is_out_of_memory(error)

    def operator_library(self, name: str) -> OperatorLibrary:
        """Return a library that the value of `libraries_key` names; a plugin gave it."""
        if self._libraries is None:
            raise RuntimeError("no library of operators was planned: case.toml has no libraries_key")
        return self._libraries(name)

    def sum_over_ranks(self, *values: float) -> list[float]:
        """Return element-wise sums over all ranks, the same on every rank. Exact for integers below 2**53."""
        return sum_over_ranks(values, self.world_size, self.device)

    def ranks_by_node(self) -> list[list[int]]:
        """Return the ranks of every node, in the order of its devices. All ranks call it together."""
        places = gather_over_ranks([self._node_index, self._local_rank], self.world_size, self.device)
        nodes: dict[float, list[int]] = {}
        for rank in sorted(range(self.world_size), key=lambda rank: places[rank]):
            nodes.setdefault(places[rank][0], []).append(rank)
        return list(nodes.values())

    def meet(self) -> None:
        """Wait until every rank is here: on the host, so that this device is idle, and for as long as it takes."""
        self._ranks.meet()

    # --- spans ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def training(self, planned_steps: int | None = None) -> Iterator[None]:
        """Measure the training of a case of kind `training`. `planned_steps` is for progress, and for
        --record-operators: the last of them are then not measured but recorded."""
        with self._of_kind("training", planned_steps):
            yield

    def inference(self, planned_steps: int | None = None) -> contextlib.AbstractContextManager[None]:
        """Measure the inference of a case of kind `inference`: its loop over the data, one step per batch."""
        return self._of_kind("inference", planned_steps)

    def _of_kind(self, name: str, planned_steps: int | None) -> contextlib.AbstractContextManager[None]:
        if name != self._kind.name:
            raise RuntimeError(f"ctx.{name}() was called by a case of kind {self._kind.name!r}, as case.toml says")
        return self.measured(planned_steps)

    @contextlib.contextmanager
    def measured(self, planned_steps: int | None = None) -> Iterator[None]:
        """Open the measured span of a case of any kind."""
        self._backend.synchronize()
        self._in_measured = True
        self._wait_ns = 0
        measured_steps = self._recorded.plan(planned_steps, self._warmup_steps)
        self._flushed_ns = self._began_ns = self._clock()
        self._sink.write(SpanBegan(self._began_ns, self._kind.name, measured_steps))
        yield
        if self._in_measured:
            self._end_measured()
        self._recorded.end(self._num_steps)

    def _end_measured(self) -> None:
        self._backend.synchronize()
        ended_ns = self._clock()
        self._in_measured = False
        if not self._kind.has_steps:
            self._rows.check()
        self._sink.write(*self._take_pending(), SpanEnded(ended_ns, self._kind.name, self._began_ns, self._num_steps))

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Name any other part of the run, such as loading or compiling. Inside the measured span, spans that the kind
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
        events.WORK. If a row could not be measured, pass no values and a `problem`. Values with a `problem` are kept,
        but the row is `invalid` and no figure is made of it."""
        texts = {key: str(label) for key, label in labels.items()}
        numbers = tuple(map(float, values))
        amounts = checked_work(work)
        status: RowStatus = "ok" if not problem else "invalid" if numbers else "error"
        row = RowMeasured(self._clock(), name, texts, unit, numbers, amounts, problem, status)
        self._rows.add(row)

    def timed_row(
        self,
        name: str,
        labels: Mapping[str, object],
        prepare: Prepare,
        *,
        together: bool | Collection[int] = False,
    ) -> RowMeasured:
        """Time one thing and record it as a row with every sample. `prepare` returns a Timed. What it or the timed call
        raises is the row's status (out_of_memory, unsupported, error), and the case goes on. `together`: all ranks, or
        those listed, take part in every call, so they make equally many. If one of them fails alone in a call, the run
        fails. Needs the values `measure`."""
        return self.timed_rows(name, [(labels, prepare)], together=together)[0]

    def timed_rows(
        self, name: str, alternatives: Sequence[Alternative], *, together: bool | Collection[int] = False
    ) -> list[RowMeasured]:
        """Do the same for alternatives of one thing, which take turns in the order A-B-B-A."""
        return self._rows.time(name, alternatives, together)

    def turns(self) -> Iterator[str]:
        """Yield the turns of this device: `single`, alone on its node, then `all`, all together. In that turn all ranks
        time the same rows in the same order: the samples of each row begin at the same time. A single device has only
        the first."""
        return self._rows.turns(self._local_rank)

    def use_precision(self, name: str) -> dict[str, str]:
        """Set the framework's switches, in the `prepare` of a row of a case whose precision is `per-row`. Returns them,
        read back, for the row's facts. Raises Unsupported if the adapter does not have it."""
        backend = self._backend
        if name not in backend.precisions:
            offered = ", ".join(backend.precisions)
            raise Unsupported(f"vendor {backend.vendor} does not support precision {name}; it has: {offered}")
        self.precision = precision(name)
        backend.set_precision(self.precision)
        return {switch: str(value) for switch, value in backend.precision_switches().items()}

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of the loader, copied to the device."""
        began_ns = self._clock()
        for batch in loader:
            on_device = to_device(batch, self.device)
            self._wait_ns += self._clock() - began_ns
            yield on_device
            began_ns = self._clock()

    def step(self) -> Step:
        if self._recorded.is_due(self._num_steps):
            return RecordedStep(self._recorded.recorder(self.device), self._begin_step, self._finish_recorded_step)
        return Step(self._backend, self._clock, self._begin_step, self._finish_step)

    @contextlib.contextmanager
    def evaluation(self, planned_rows: int | None = None) -> Iterator[Evaluation]:
        """Evaluate, outside p_train and p_core. `planned_rows` is the total over all ranks. It is only for progress,
        which the case then reports."""
        with self.span("evaluation"):
            yield Evaluation(self._sink, self._clock, self._flush_ns, planned_rows, self.world_size)

    # --- bookkeeping ------------------------------------------------------------------------------------------------

    def _write_row(self, row: RowMeasured) -> None:
        self._report(lambda _now_ns: row)

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
        if self._recorded.is_due(self._num_steps):
            self._end_measured()  # what follows is not measured, evaluations included

    def _finish_recorded_step(self) -> None:
        self._in_step = False
        self._num_steps += 1
        self._recorded.steps += 1

    def _flush(self) -> None:
        """Write the finished steps. Synchronise first: that time belongs to the steps, only the time after it to
        logging."""
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
        """Write the steps of a case that has failed. A step whose loss or time cannot be read any more raises."""
        taken, self._pending = self._pending, []
        if taken:
            self._backend.synchronize()
        for measured in taken:
            self._sink.write(measured.event())

    def _ended(self, name: str, began_ns: int) -> SpanEnded:
        return SpanEnded(self._clock(), name, began_ns, self._num_steps)
