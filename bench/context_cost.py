"""flagperf's own time inside training, measured directly: clocks around every call from the case into the context."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from bench.measure import Figure
from bench.workload import BATCH_SIZE, Workload, make_context
from flagperf.worker import Context

NUM_STEPS = 100
LIMIT = 0.01

S = TypeVar("S")


def measure() -> Iterator[Figure]:
    work, meter = Workload(), Meter()
    with tempfile.TemporaryDirectory() as folder:
        context = make_context(Path(folder) / "rank-00000.jsonl")
        began_ns, began_cpu_ns = time.perf_counter_ns(), time.process_time_ns()
        _train(context, work, meter)
        cpu_ns, wall_ns = time.process_time_ns() - began_cpu_ns, time.perf_counter_ns() - began_ns
    yield _figure("context_cost_wall", meter.wall_ns, wall_ns, "wall time")
    yield _figure("context_cost_cpu", meter.cpu_ns, cpu_ns, "CPU time")


class Meter:
    """Adds up the time between `start` and `stop`, including reading the clocks."""

    wall_ns = 0
    cpu_ns = 0

    def start(self) -> None:
        self.wall_ns -= time.perf_counter_ns()
        self.cpu_ns -= time.process_time_ns()

    def stop(self) -> None:
        self.cpu_ns += time.process_time_ns()
        self.wall_ns += time.perf_counter_ns()

    def call(self, function: Callable[..., S], *arguments: Any, **keywords: Any) -> S:
        self.start()
        result = function(*arguments, **keywords)
        self.stop()
        return result

    @contextlib.contextmanager
    def span(self, open_span: Callable[[], AbstractContextManager[S]]) -> Iterator[S]:
        """Both ends of a span are counted, its body is not."""
        span = self.call(open_span)
        yield self.call(span.__enter__)
        self.call(span.__exit__, None, None, None)

    def batches(self, context: Context, loader: Iterable[S]) -> Iterator[S]:
        """Counts what the context does to pass on a batch, but not the loader."""
        handed_on = context.batches(self._uncounted(loader))
        while (batch := self.call(next, handed_on, None)) is not None:
            yield batch

    def _uncounted(self, loader: Iterable[S]) -> Iterator[S]:
        iterator = iter(loader)
        while True:
            self.stop()
            item = next(iterator, None)
            self.start()
            if item is None:
                return
            yield item


def _train(context: Context, work: Workload, meter: Meter) -> None:
    with meter.span(lambda: context.training(planned_steps=NUM_STEPS)):
        for batch in meter.batches(context, work.batches(NUM_STEPS)):
            with meter.span(context.step) as step:
                loss = work.step(batch)
                meter.call(step.done, samples=BATCH_SIZE, tokens=BATCH_SIZE, padded_tokens=0, loss=loss)
        with meter.span(context.evaluation):
            pass
        meter.call(context.report, acc=0.5)


def _figure(name: str, inside_ns: int, all_ns: int, what: str) -> Figure:
    share = inside_ns / all_ns
    how = (
        f"{what} in the context's code, writing events to a file included: {inside_ns / NUM_STEPS / 1e3:.0f} us per "
        f"step of {all_ns / NUM_STEPS / 1e6:.0f} ms, {NUM_STEPS} steps on one thread"
    )
    return Figure(name, f"{share:.3%}", f"<= {LIMIT:.0%}", share <= LIMIT, how)
