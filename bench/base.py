"""The base cases against bare programs that do the same work, in one process and in turns, and what a sample costs.

The cases' own functions prepare the work, and the worker's own timer samples it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from bench.measure import Figure, NotMeasured, interleaved, median_interval, seconds_of, throughput_ratio
from bench.stream_copy import stream_copy
from flagperf.builtin.cpu import CpuBackend
from flagperf.units import SECOND_NS
from flagperf.worker import Timed
from flagperf.worker.timer import MeasureRules, SampleSeries, Timer
from flagperf_cases.gemm.case import make_product
from flagperf_cases.gemm.data import Shape
from flagperf_cases.memory_bandwidth.case import PATTERNS

NUM_PAIRS = 60
GEMM_LIMIT, COPY_LIMIT, SAMPLE_LIMIT = 0.95, 0.9, 0.02

GEMM = Shape(512, 512, 512)
"""On one thread: on a busy machine threads wait for each other."""
TURN_SECONDS = 0.1
"""Of the samples of a row. What the machine does besides changes little in a pair of short turns."""
CACHES, LEAST_BYTES = 16, 256 << 20
"""Of an array that is copied."""
OPERATOR_SECONDS, BLOCKS = 1e-3, 40


def measure() -> Iterator[Figure]:
    yield from _gemm()
    yield from _copy()
    yield _sample_cost()


def _gemm() -> Iterator[Figure]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    product = make_product("fp32", GEMM, "cpu", seed=0)
    yield from _ratio("gemm", product.call, product.call, GEMM_LIMIT, f"fp32 {GEMM}, over a bare loop of torch.mm")
    torch.set_num_threads(threads)


def _copy() -> Iterator[Figure]:
    num_bytes = max(LEAST_BYTES, CACHES * (CpuBackend().cache_bytes() or 0))
    what = f"copy of {num_bytes >> 20} MiB, over STREAM's copy (cc -O3 -fopenmp)"
    with tempfile.TemporaryDirectory() as folder:
        try:
            stream = stream_copy(Path(folder), num_bytes, torch.get_num_threads())
        except NotMeasured as error:
            yield Figure("memory_copy_ratio", "none", f">= {COPY_LIMIT}", None, f"not measured: {error}")
            return
        call, _ = PATTERNS["copy"].make(num_bytes // 4, "cpu")
        yield from _ratio("memory_copy", call, stream, COPY_LIMIT, what)


def _ratio(
    name: str, call: Callable[[], object], bare_call: Callable[[], object], limit: float, what: str
) -> Iterator[Figure]:
    """An A/B and an A/A pair in every round, in seconds of one call."""
    series = _timer().warm_up(Timed(call=call, check=lambda _: {}))
    num_calls = max(2, round(TURN_SECONDS / seconds_of(bare_call)))
    bare = partial(_bare_seconds, bare_call, num_calls)
    programs = {"bare": bare, "case": partial(_row_seconds, series), "bare again": bare, "bare as well": bare}
    found = interleaved(programs, NUM_PAIRS)
    how = f"{what}: median and 95 % interval of {NUM_PAIRS} alternating pairs, {torch.get_num_threads()} thread(s)"
    same = throughput_ratio(found["bare again"], found["bare as well"])
    ratio = throughput_ratio(found["bare"], found["case"])
    yield Figure(f"{name}_ratio_aa", str(same), "", None, f"bare over bare: {how}")
    yield Figure(f"{name}_ratio", str(ratio), f">= {limit}", ratio.reaches(limit), how)


def _timer(seconds: float = TURN_SECONDS) -> Timer:
    return Timer(CpuBackend(), time.monotonic_ns, MeasureRules(seconds, 1, 0.1, 1.0))


def _bare_seconds(call: Callable[[], object], num_calls: int) -> float:
    def loop() -> None:
        for _ in range(num_calls):
            call()

    return seconds_of(loop) / num_calls


def _row_seconds(series: SampleSeries) -> float:
    """Mean of the samples that this turn adds."""
    before = len(series.seconds())
    _timer(series.taken_ns / SECOND_NS + TURN_SECONDS).measure([series])
    added = series.seconds()[before:]
    return sum(added) / len(added)


def _sample_cost() -> Figure:
    """Everything of a sample but the operator itself, whose time is measured inside the call."""
    inside = Inside(_operator())
    series = _timer().warm_up(Timed(call=inside.call, check=lambda _: {}))
    assert series.calls == 1, "the operator is too short to be a sample"
    found = median_interval([_seconds_outside(series, inside) / OPERATOR_SECONDS for _ in range(BLOCKS)])
    how = (
        f"time of a sample outside its operator ({found.median * OPERATOR_SECONDS * 1e6:.1f} us), over 1 ms; median "
        f"and 95 % interval of {BLOCKS} blocks of {series.block} samples"
    )
    value = f"{found.median:.2%} [{found.low:.2%}, {found.high:.2%}]"
    return Figure("sample_cost", value, f"< {SAMPLE_LIMIT:.0%}", found.median < SAMPLE_LIMIT, how)


class Inside:
    """Adds up the time of the calls themselves."""

    seconds = 0.0

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def call(self) -> None:
        self.seconds += seconds_of(self._work)


def _seconds_outside(series: SampleSeries, inside: Inside) -> float:
    """Of one sample, in a block."""
    before = inside.seconds
    taken = seconds_of(series.take_block)
    return (taken - (inside.seconds - before)) / series.block


def _operator() -> Callable[[], object]:
    """A chain of additions on the host that lasts at least a millisecond even where the machine is idle."""
    numbers = torch.randn(4096)

    def work(repeats: int) -> None:
        for _ in range(repeats):
            numbers.add_(0.0)

    fastest = min(seconds_of(partial(work, 100)) for _ in range(20)) / 100
    return partial(work, round(1.2 * OPERATOR_SECONDS / fastest))
