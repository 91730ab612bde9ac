"""Timed rows, alternatives in turns, devices in turns."""

from __future__ import annotations

import contextlib
import gc
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import get_args

import msgspec

from flagperf.api import DeviceBackend
from flagperf.errors import Unsupported
from flagperf.events import RowMeasured, RowStatus
from flagperf.worker.rank_sync import Nobody, Partners, Ranks, max_over_ranks
from flagperf.worker.step_timing import checked_work
from flagperf.worker.timer import MeasureRules, SampleSeries, Timed, Timer, WrongOutput

# How the devices of a job take turns, so that each is measured alone and all are measured together.


def turns(local_rank: int, ranks: Ranks) -> Iterator[str]:
    """Yield the turns of this rank. Alone means alone on its node: nodes share nothing that these rows measure. All
    ranks wait for each other between the turns."""
    if ranks.world_size == 1:
        yield "single"
        return
    last = int(max_over_ranks(local_rank, ranks.world_size, ranks.device))
    for turn in range(last + 1):
        ranks.meet()
        if turn == local_rank:
            yield "single"
    ranks.meet()
    yield "all"
    ranks.meet()


# What the framework's allocator keeps of a device's memory.


def free_memory(torch_device: str) -> None:
    """Give back what no tensor uses any more."""
    gc.collect()
    _ask_module(torch_device, "empty_cache")


def forget_memory(torch_device: str) -> None:
    """Leave what was used so far out of the allocator's peaks."""
    for name in ("empty_cache", "reset_peak_memory_stats"):
        _ask_module(torch_device, name)


def _ask_module(torch_device: str, name: str) -> None:
    import torch

    module = getattr(torch, torch_device.partition(":")[0], None)  # the CPU has none, and others need not have it all
    if hasattr(module, name):
        getattr(module, name)()


# Rows of alternatives: each is prepared, warmed up, timed in turns with the others, and checked. What one of them
# raises is the status of its row, and the others go on.


Prepare = Callable[[], Timed]

Alternative = tuple[Mapping[str, object], Prepare]

STATUSES: tuple[RowStatus, ...] = get_args(RowStatus)

UNSUPPORTED_WORDS = (
    "not implemented", "not supported", "unsupported", "only supported", "not available", "n't support", "not support ",
)  # fmt: skip
"""Words of torch and of vendors' libraries for what they cannot do."""


class _Row:
    """One alternative, from its preparation to its event."""

    def __init__(self, labels: Mapping[str, object], backend: DeviceBackend) -> None:
        self.labels = {name: str(label) for name, label in labels.items()}
        self.status: RowStatus = "ok"
        self.problem = ""
        self.facts: dict[str, str] = {}
        self.timed: Timed | None = None
        self.series: SampleSeries | None = None
        self._backend = backend

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Turn an exception into the row's status. Its traceback goes to the rank's log, and holds on to no tensor."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  the row's own failure
            says_so = any(word in str(error).lower() for word in UNSUPPORTED_WORDS)
            if isinstance(error, WrongOutput):
                self.status = "invalid"
            elif self._backend.is_out_of_memory(error):
                self.status = "out_of_memory"
            elif says_so or isinstance(error, Unsupported | NotImplementedError):
                self.status = "unsupported"
            else:
                self.status = "error"
            lines = str(error).strip().splitlines()  # torch adds the stack of the library to some
            self.problem = lines[0] if lines else type(error).__name__
            if not isinstance(error, WrongOutput | Unsupported):
                self.problem = f"{type(error).__name__}: {self.problem}"
            if self.status == "error":
                traceback.print_exc()
            traceback.clear_frames(error.__traceback__)

    @contextlib.contextmanager
    def guard_call(self, partners: Partners) -> Iterator[None]:
        """Guard a call of all partners. If all fail in it, as where the library lacks an operation, the failure is the
        row's own; if this rank fails alone, the run fails."""
        with self.guard():
            yield
        if not self.is_ok:
            partners.confirm_failure(self.problem)

    def status_of_all(self, partners: Partners) -> None:
        """Take the worst status of all partners: none of them begins if one could not prepare."""
        worst = STATUSES[int(partners.agree(STATUSES.index(self.status)))]
        if self.is_ok and worst != "ok":
            self.status, self.problem = worst, "another rank could not prepare it; see the row of that rank"

    @property
    def is_ok(self) -> bool:
        return self.status == "ok"

    def event(self, name: str, t_ns: int) -> RowMeasured:
        event = RowMeasured(t_ns, name, self.labels, "s", (), problem=self.problem, status=self.status)
        if self.timed is None or self.series is None or self.status not in ("ok", "invalid"):
            return event
        return msgspec.structs.replace(
            event,
            values=self.series.seconds(),
            work=checked_work({name: getattr(self.timed, name) for name in ("flops", "bytes", "bus_bytes")}),
            timing=self.series.timing(),
            limits=self.timed.limits,
            facts=self.facts,
        )


def measure_rows(
    timer: Timer,
    backend: DeviceBackend,
    torch_device: str,
    name: str,
    alternatives: Sequence[Alternative],
    clock: Callable[[], int],
) -> list[RowMeasured]:
    """Return one row for each alternative. Their operands are gone afterwards."""
    rows = []
    for labels, prepare in alternatives:
        row = _Row(labels, backend)
        rows.append(row)
        with row.guard():
            row.timed = prepare()
        row.status_of_all(timer.partners)
        if row.is_ok and row.timed is not None:
            with row.guard_call(timer.partners):
                row.series = timer.warm_up(row.timed)
        if not row.is_ok:
            row.timed = row.series = None
            free_memory(torch_device)
    ready = [row for row in rows if row.is_ok]
    if not ready:
        timer.measure([])  # others may have rows
    else:
        with ready[0].guard_call(timer.partners):
            timer.measure([row.series for row in ready if row.series is not None])
        for row in ready[1:]:  # what goes wrong only now concerns all that took turns
            row.status, row.problem = ready[0].status, ready[0].problem
    for row in ready:
        if row.is_ok and row.timed is not None and row.series is not None:
            with row.guard():
                row.facts = dict(row.timed.check(row.series.output))
    events = [row.event(name, clock()) for row in rows]
    for row in rows:
        row.timed = row.series = None
    free_memory(torch_device)
    return events


# RowTable: the rows that a rank has measured so far, and how further ones are timed.


class RowTable:
    def __init__(
        self,
        backend: DeviceBackend,
        torch_device: str,
        clock: Callable[[], int],
        rules: MeasureRules | None,
        ranks: Ranks,
        write: Callable[[RowMeasured], None],
    ) -> None:
        self._backend = backend
        self._torch_device = torch_device
        self._clock = clock
        self._rules = rules
        self._ranks = ranks
        self._write = write
        self._statuses: set[RowStatus] = set()
        self._first_problem = ""
        self._turns = 0
        self._are_all_at_once = False
        """Every rank times the same rows now, each on its own device."""

    def add(self, row: RowMeasured) -> None:
        self._write(row)
        self._statuses.add(row.status)
        self._first_problem = self._first_problem or row.problem

    def time(
        self, name: str, alternatives: Sequence[Alternative], together: bool | Collection[int]
    ) -> list[RowMeasured]:
        if self._rules is None:
            raise RuntimeError("the case has no [values.measure], which says how long a row is timed")
        meet = self._ranks.meet if self._are_all_at_once else lambda: None
        if isinstance(together, bool):
            partners = self._ranks.all_together() if together else Nobody()
        else:
            partners = self._ranks.some_together(together)
        timer = Timer(self._backend, self._clock, self._rules, partners, meet)
        rows = measure_rows(timer, self._backend, self._torch_device, name, alternatives, self._clock)
        if len(rows) > 1:
            self._turns += 1
            rows = [msgspec.structs.replace(row, turns=self._turns) for row in rows]
        for row in rows:
            self.add(row)
        return rows

    def turns(self, local_rank: int) -> Iterator[str]:
        for devices in turns(local_rank, self._ranks):
            self._are_all_at_once = devices == "all"
            yield devices
            self._are_all_at_once = False

    def check(self) -> None:
        """Raise if rows were added and none of them was measured: the case then has no result."""
        if not self._statuses or "ok" in self._statuses:
            return
        text = f"no row could be measured; the first: {self._first_problem}"
        raise Unsupported(text) if self._statuses == {"unsupported"} else RuntimeError(text)
