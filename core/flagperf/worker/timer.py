"""Timer: samples of a call on the device, taken as docs/metrics.md says under Rows.

A sample is one call, or a batch of calls that together last at least a millisecond. With timing events, samples are
issued in blocks without waiting in between, so that the device does not idle; otherwise the host waits for each.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from flagperf.api import DeviceBackend, TimingEvent
from flagperf.events import RowTiming
from flagperf.stats import median
from flagperf.units import SECOND_NS
from flagperf.worker.rank_sync import Nobody, Partners

# Timed: one thing to be timed, as a case describes it.


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
    """Operations of one call."""
    bytes: int = 0
    """Bytes that one call has to move at least."""
    bus_bytes: int = 0
    """Bytes that one call has to move at least over the links of this device, in the direction that has more of
    them."""
    limits: dict[str, str] = {}
    """Bounds of the work: {"flops": "bf16", "bytes": "memory_bandwidth"}. Values are rows of the card's peaks."""
    before: Callable[[], None] | None = None
    """Called before every sample and not timed: new inputs, a flushed cache. A sample is then a single call, unless
    there is more than one in `calls_per_before`."""
    calls_per_before: int = 1
    """So many calls, at most, may follow one `before`: they have inputs of their own, say."""
    within: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Calls are made inside of it, block by block of samples; neither its begin nor its end is timed. Alternatives that
    take turns may each have settings of their own."""


SAMPLE_NS = 1_000_000
"""A shorter sample would measure the clock."""

BLOCK_NS = 20_000_000

BLOCK_SAMPLES = 64
"""A block ends with a synchronisation: after so much time, or so many samples."""

ENOUGH_SAMPLES = 300
"""Enough of calls below SAMPLE_NS. As many as the time allows would be tens of thousands for each row, gigabytes in a
long run. So batches are longer in a longer row; if calls cannot be batched, the row ends earlier."""

WARMUP_BLOCK = 10

SIZING_BLOCKS = 3

LONG_CALL_NS = 5 * SAMPLE_NS

ENLARGED = 1.1
"""A batch that would be longer by less stays as it is."""

SETTLED = 0.01
"""Medians of two blocks of the warm-up that differ by less are equal."""


class MeasureRules(msgspec.Struct, frozen=True):
    """The group `measure` of the case's values."""

    seconds: float
    """Least duration of the samples of a row."""
    min_samples: int
    warmup_seconds: float
    warmup_cap_seconds: float


class Timer:
    """`partners` take part in every call, and make equally many. `meet` is called once, right before samples are taken:
    others do the same at the same time."""

    def __init__(
        self,
        backend: DeviceBackend,
        clock: Callable[[], int],
        rules: MeasureRules,
        partners: Partners | None = None,
        meet: Callable[[], None] = lambda: None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._rules = rules
        self._meet = meet
        self.partners = partners or Nobody()

    def warm_up(self, timed: Timed) -> SampleSeries:
        """Make the first call and the warm-up: until two blocks in a row have nearly equal medians, at least for the
        time of the rules, at most to the cap. Raises what the call raises."""
        agree = self.partners.agree
        series = SampleSeries(timed, self._backend, self._clock)
        series.first_call()
        began_ns, before, resized = self._clock(), math.inf, 0
        self._size(series, self._call_ns(series))
        while True:
            now = median(series.try_samples(WARMUP_BLOCK))
            elapsed = agree((self._clock() - began_ns) / SECOND_NS)
            difference = agree(abs(now - before) / now if now else 0.0)
            series.settled, before = difference < SETTLED, now
            series.sample_ns = agree(now)
            if resized < SIZING_BLOCKS and self._enlarge(series):
                resized, before = resized + 1, math.inf
                continue
            is_over = elapsed >= self._rules.warmup_seconds and series.settled
            if is_over or elapsed >= self._rules.warmup_cap_seconds:
                break
        if not series.settled:  # what disturbed the warm-up may be over
            series.sample_ns = agree(median(series.try_samples(WARMUP_BLOCK)))
            if self._enlarge(series):
                series.sample_ns = agree(median(series.try_samples(WARMUP_BLOCK)))
        series.plan_blocks(agree(series.warmup_period_ns))
        return series

    def measure(self, all_series: Sequence[SampleSeries]) -> None:
        """Take samples. Alternatives of one thing take turns in blocks, A-B-B-A, so that what drifts hits all alike.
        The number of blocks is planned by the pace of the warm-up, and then by their own, so that each lasts its time.
        The garbage collector is off meanwhile."""
        with _without_garbage_collection():
            self._meet()
            number = 0
            while missing := self.partners.agree(max(map(self._missing_blocks, all_series), default=0)):
                for _ in range(int(missing)):
                    for series in all_series if number % 2 == 0 else reversed(all_series):
                        series.take_block()
                    number += 1

    def _missing_blocks(self, series: SampleSeries) -> int:
        num_samples = (self._rules.seconds * SECOND_NS - series.taken_ns) / series.period_ns
        if series.is_short:
            num_samples = min(num_samples, ENOUGH_SAMPLES - series.num_samples)
        num_samples = max(num_samples, self._rules.min_samples - series.num_samples)
        return max(0, math.ceil(num_samples / series.block))

    def _call_ns(self, series: SampleSeries) -> float:
        """Return the time of a call in the fastest of a few blocks: other processes only make a block slower. Long
        calls are tried in one block."""
        found = self.partners.agree(series.try_calls(WARMUP_BLOCK))
        for _ in range(SIZING_BLOCKS - 1 if found < LONG_CALL_NS else 0):
            found = min(found, self.partners.agree(series.try_calls(WARMUP_BLOCK)))
        return found

    def _enlarge(self, series: SampleSeries) -> bool:
        """Put more calls into a sample if they were slower while they were tried: their samples are too short."""
        calls = series.calls
        self._size(series, series.sample_ns / calls)
        if series.calls > ENLARGED * calls:
            return True
        series.calls = calls
        return False

    def _size(self, series: SampleSeries, call_ns: float) -> None:
        series.size(call_ns, self._rules.seconds * SECOND_NS / ENOUGH_SAMPLES)


class SampleSeries:
    """The samples of one row, while they are taken."""

    settled = False
    calls = 1
    block = 1
    sample_ns = 1.0
    warmup_period_ns = 1.0
    taken_ns = 0
    """Duration of all blocks, with what is done between their samples."""

    def __init__(self, timed: Timed, backend: DeviceBackend, clock: Callable[[], int]) -> None:
        self._timed = timed
        self._backend = backend
        self._clock = clock
        self._output: Any = None
        self._first_ns = 0
        self._warmup_calls = 0
        self._starts_ns: list[int] = []
        self._issue_ns: list[int] = []
        self._device_ns: list[int] = []
        self._ended_ns = 0

    def first_call(self) -> None:
        with self._timed.within():
            self._prepare()
            self._backend.synchronize()
            began_ns = self._clock()
            self._output = self._timed.call()
            self._backend.synchronize()
            self._first_ns = self._clock() - began_ns
        self._warmup_calls += 1

    def try_calls(self, count: int) -> float:
        """Return the nanoseconds of one call, in a row of calls."""
        with self._timed.within():
            self._prepare()
            self._backend.synchronize()
            began_ns = self._clock()
            for _ in range(count):
                self._output = self._timed.call()
            self._backend.synchronize()
            elapsed_ns = self._clock() - began_ns
        self._warmup_calls += count
        return elapsed_ns / count

    def size(self, call_ns: float, batch_ns: float) -> None:
        """Make a sample one call, or a batch of shorter ones that is worth a sample."""
        wanted = math.ceil(max(SAMPLE_NS, batch_ns) / max(call_ns, 1)) if call_ns < SAMPLE_NS else 1
        self.calls = min(wanted, self._timed.calls_per_before) if self._timed.before else wanted

    @property
    def is_short(self) -> bool:
        """Something is done before every sample, and it is shorter than others."""
        return self._timed.before is not None and self.sample_ns < SAMPLE_NS

    def try_samples(self, count: int) -> list[float]:
        with self._timed.within():
            began_ns = self._clock()
            taken = [self._take() for _ in range(count)]
            self._backend.synchronize()
            self.warmup_period_ns = (self._clock() - began_ns) / count
        self._warmup_calls += count * self.calls
        return [float(sample.device_ns()) for sample in taken]

    def plan_blocks(self, period_ns: float) -> None:
        self.warmup_period_ns = max(period_ns, 1.0)
        self.block = min(BLOCK_SAMPLES, max(1, round(BLOCK_NS / self.warmup_period_ns)))

    def take_block(self) -> None:
        with self._timed.within():
            self._backend.synchronize()
            began_ns = self._clock()
            taken = [self._take() for _ in range(self.block)]
            self._backend.synchronize()
            self._ended_ns = self._clock()
        self.taken_ns += self._ended_ns - began_ns
        self._starts_ns += [sample.began_ns for sample in taken]
        self._issue_ns += [sample.issued_ns - sample.began_ns for sample in taken]
        self._device_ns += [sample.device_ns() for sample in taken]

    @property
    def num_samples(self) -> int:
        return len(self._device_ns)

    @property
    def period_ns(self) -> float:
        """Time from one sample to the next, with what is done in between: so far, or in the warm-up."""
        return max(1.0, self.taken_ns / self.num_samples) if self.num_samples else self.warmup_period_ns

    @property
    def output(self) -> Any:
        """Output of the last timed call."""
        return self._output

    def seconds(self) -> tuple[float, ...]:
        """Return the time of one call, by sample."""
        return tuple(round(ns / self.calls / SECOND_NS, 12) for ns in self._device_ns)

    def timing(self) -> RowTiming:
        has_events = self._backend.has_timing_events
        began_ns = self._starts_ns[0]
        return RowTiming(
            clock="device_events" if has_events else "synchronize",
            calls=self.calls,
            began_ns=began_ns,
            ended_ns=self._ended_ns,
            block=self.block,
            starts_ns=tuple(start_ns - began_ns for start_ns in self._starts_ns),
            issue_ns=tuple(self._issue_ns) if has_events else (),
            first_ns=self._first_ns,
            warmup_calls=self._warmup_calls,
            settled=self.settled,
        )

    def _take(self) -> _Sample:
        self._prepare()
        if not self._backend.has_timing_events:
            self._backend.synchronize()
        sample = _Sample(self._backend)
        sample.began_ns = self._clock()
        sample.begin()
        call = self._timed.call
        for _ in range(self.calls):
            self._output = call()
        sample.end()
        sample.issued_ns = self._clock()
        return sample

    def _prepare(self) -> None:
        if self._timed.before is not None:
            self._timed.before()


class _Sample:
    """Timed by events, or by the host, which then waits at the end."""

    began_ns = 0
    issued_ns = 0
    _marks: tuple[TimingEvent, TimingEvent] | None = None

    def __init__(self, backend: DeviceBackend) -> None:
        self._backend = backend
        if backend.has_timing_events:
            self._marks = backend.timing_event(), backend.timing_event()

    def begin(self) -> None:
        if self._marks is not None:
            self._marks[0].record()

    def end(self) -> None:
        if self._marks is not None:
            self._marks[1].record()
        else:
            self._backend.synchronize()

    def device_ns(self) -> int:
        """Return the time on the device. The caller has synchronised it."""
        if self._marks is None:
            return self.issued_ns - self.began_ns
        return self._marks[0].elapsed_ns(self._marks[1])


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
