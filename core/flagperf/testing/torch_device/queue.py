"""The device's queue: work that the host does not wait for until it synchronises.

Operators compute at once, on the CPU. What a queue does beyond that is played: time that a test queues, copies that
happen later than they were asked for, errors and hangs that the host learns of late. All waits of the host are counted.
"""

from __future__ import annotations

import time

import torch

from flagperf.testing.torch_device.options import Options


class Queue:
    def __init__(self, options: Options, local_rank: int) -> None:
        self._options = options
        self._has_fault = local_rank == options.rank
        self._busy_until = 0.0
        self._to_device: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._to_host: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._is_warm = False
        self.num_operators = 0
        self.num_synchronizations = 0
        """Waits of the host for the device, asked for (`synchronize`) or hidden (a copy to the host, `item`)."""

    # --- work -------------------------------------------------------------------------------------------------------

    def add_operator(self, name: str) -> None:
        self.num_operators += 1
        self.copy_to_device()
        if not self._is_warm and name in ("aten::mm", "aten::addmm", "aten::bmm"):
            self._is_warm = True
            self.add_seconds(self._options.first_seconds)

    def add_seconds(self, seconds: float) -> None:
        self._busy_until = self.end_seconds() + seconds

    def end_seconds(self) -> float:
        """Return when all that is queued now will be done."""
        return max(self._busy_until, time.perf_counter())

    # --- copies that need not be done when the call returns -----------------------------------------------------------

    def add_copy_to_device(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Read the host's memory only when the next operator runs, so that reusing it before that is noticed."""
        self._to_device.append((target, source))

    def copy_to_device(self) -> None:
        pending, self._to_device = self._to_device, []
        for target, source in pending:
            target.copy_(source)

    def add_copy_to_host(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Let the host find nonsense there until it synchronises."""
        self._to_host.append((target, source.clone()))
        target.fill_(float("nan") if target.is_floating_point() else 1)

    # --- waiting ----------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        self.num_synchronizations += 1
        options, num_operators = self._options, self.num_operators
        if self._has_fault and 0 < options.hang_at <= num_operators:
            while True:
                time.sleep(3600)
        time.sleep(max(0.0, self._busy_until - time.perf_counter()))
        if self._has_fault and 0 < options.error_at <= num_operators:
            raise torch.AcceleratorError(f"an illegal memory access was encountered in operator {options.error_at}")
        self.copy_to_device()
        pending, self._to_host = self._to_host, []
        for target, source in pending:
            target.copy_(source)


class QueueEvent:
    """A mark at the end of the queue as it is when it is recorded."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._at_seconds: float | None = None

    def record(self, stream: object = None) -> None:
        self._at_seconds = self._queue.end_seconds()

    def wait(self, stream: object = None) -> None:
        """Do nothing: what comes later in the one queue is done later."""

    def query(self) -> bool:
        return self._at_seconds is None or self._at_seconds <= time.perf_counter()

    def synchronize(self) -> None:
        self._queue.synchronize()

    def elapsed_time(self, later: QueueEvent) -> float:
        """Return milliseconds, as torch does."""
        if self._at_seconds is None or later._at_seconds is None:
            raise RuntimeError("both events must be recorded before their time is read")
        if not later.query():
            raise RuntimeError("the later event is still in the queue: synchronise first")
        return (later._at_seconds - self._at_seconds) * 1000
