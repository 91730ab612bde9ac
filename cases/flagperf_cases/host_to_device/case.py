"""Measure how fast data moves between host and device, each way and both at once. See README.md."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from flagperf.errors import Unsupported
from flagperf.worker import Context, Timed, WrongOutput
from flagperf_cases.buffers import WINDOW_EXTRA, are_equal, host_memory_problem, num_turns, windows
from flagperf_cases.sizes import ELEMENT_BYTES, planned_sizes, read_size, read_sizes

LIMITS = {"h2d": {"bytes": "host_link"}, "d2h": {"bytes": "host_link"}, "both": {}}
"""By direction. What is rated is one direction, and not twice of it in both."""


def run(ctx: Context) -> None:
    wanted = ctx.config.host_to_device
    headline = read_size("host_to_device.headline", wanted.headline)
    sizes = planned_sizes(headline, read_sizes("host_to_device.sizes", wanted.sizes))
    planned = list(itertools.product(wanted.memories, wanted.directions, sizes))
    with ctx.measured(planned_steps=num_turns(ctx) * len(planned)):
        for devices in ctx.turns():
            for memory, direction, (kind, size) in planned:
                _measure(ctx, direction, memory, size, {"class": kind, "devices": devices})


def _measure(ctx: Context, direction: str, memory: str, size: int, labels: dict[str, str]) -> None:
    directions = 2 if direction == "both" else 1

    def prepare() -> Timed:
        if problem := host_memory_problem(ctx, 2 * directions * size):
            raise MemoryError(problem)
        torch.manual_seed(ctx.config.host_to_device.seed)
        call = make_transfer(ctx, direction, memory, size)

        def facts(arrived: tuple[Arrived, ...]) -> dict[str, str]:
            check_arrival(arrived)
            return {"check": "every element of the last timed output"}

        return Timed(call=call, check=facts, bytes=directions * size, limits=LIMITS[direction])

    path = "link" if ctx.has_own_memory() else "same memory"
    named = {"direction": direction, "memory": memory, "bytes": size, "path": path}
    ctx.timed_row("host_to_device", {**named, **labels}, prepare)


# --- transfers --------------------------------------------------------------------------------------------------------

Arrived = tuple[torch.Tensor, torch.Tensor]
"""Target and source of a copy."""

Transfer = Callable[[], tuple[Arrived, ...]]

SAME_MEMORY = "the device's memory is the host's"


def make_transfer(ctx: Context, direction: str, memory: str, num_bytes: int) -> Transfer:
    """Raise Unsupported where the device has no such memory or cannot do two things at once."""
    if not ctx.has_own_memory() and (direction == "both" or memory == "pinned"):
        raise Unsupported(f"{SAME_MEMORY}: there is no link to cross, in one direction or in both")
    if direction != "both":
        copy = _one_way(ctx, direction, memory, num_bytes)
        return lambda: (copy(),)
    streams = _Streams(ctx.device)
    to_device, to_host = (_one_way(ctx, each, memory, num_bytes) for each in ("h2d", "d2h"))
    return (_both_issued if memory == "pinned" else _both_in_threads)(streams, to_device, to_host)


def check_arrival(arrived: tuple[Arrived, ...]) -> None:
    for target, source in arrived:
        if not are_equal(target.cpu(), source.cpu()):
            raise WrongOutput("what arrived differs from what was sent")


def _one_way(ctx: Context, direction: str, memory: str, num_bytes: int) -> Callable[[], Arrived]:
    """Return a copy. Of pageable memory it is done when the call returns: the driver has to read it in between."""
    length = num_bytes // ELEMENT_BYTES
    numbers = torch.randn(length + WINDOW_EXTRA)
    if direction == "h2d":
        sources = windows(_host_memory(ctx, numbers, memory), length)
        target = torch.empty(length, device=ctx.device)
    else:
        sources = windows(numbers.to(ctx.device), length)
        target = _host_memory(ctx, torch.zeros(length), memory)

    def copy() -> Arrived:
        source = next(sources)
        return target.copy_(source, non_blocking=memory == "pinned"), source

    return copy


def _host_memory(ctx: Context, values: torch.Tensor, memory: str) -> torch.Tensor:
    if memory == "pageable":
        return values
    try:
        pinned = values.pin_memory()
    except (RuntimeError, NotImplementedError) as error:
        if ctx.is_out_of_memory(error):
            raise
        raise Unsupported(f"this torch cannot pin memory for the device: {str(error).splitlines()[0]}") from error
    if not pinned.is_pinned():
        raise Unsupported("torch was asked to pin memory and did not")
    return pinned


class _Streams:
    """Holds the stream that is timed, and one beside it."""

    def __init__(self, device: str) -> None:
        module: Any = getattr(torch, torch.device(device).type, object())
        if not all(hasattr(module, name) for name in ("Stream", "stream", "current_stream")):
            raise Unsupported(f"torch has no streams for {device}: the two directions would take turns")
        self._module = module
        self._timed = module.current_stream()
        self._beside = module.Stream(device=device)

    @contextlib.contextmanager
    def forked(self) -> Iterator[None]:
        """Let what is issued to either stream begin after what was timed before, and end before what is timed next."""
        self._beside.wait_stream(self._timed)
        yield
        self._timed.wait_stream(self._beside)

    def beside(self, copy: Callable[[], Arrived]) -> Arrived:
        with self._module.stream(self._beside):
            return copy()


def _both_issued(streams: _Streams, to_device: Callable[[], Arrived], to_host: Callable[[], Arrived]) -> Transfer:
    def call() -> tuple[Arrived, ...]:
        with streams.forked():
            return streams.beside(to_host), to_device()

    return call


def _both_in_threads(streams: _Streams, to_device: Callable[[], Arrived], to_host: Callable[[], Arrived]) -> Transfer:
    """Return a transfer with a thread for each direction: the host takes part in copies of pageable memory."""
    thread = ThreadPoolExecutor(1)

    def call() -> tuple[Arrived, ...]:
        with streams.forked():
            returned = thread.submit(streams.beside, to_host)
            sent = to_device()
            return returned.result(), sent

    return call
