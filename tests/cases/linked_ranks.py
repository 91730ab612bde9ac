"""What the ranks of the tests of collectives and peer_to_peer do; found by its name in their processes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec
from case_harness import CaseHarness

from flagperf.events import RowMeasured
from flagperf.worker import rank_sync


class Work(msgspec.Struct, frozen=True):
    case: str
    per_node: int
    changes: dict[str, Any]
    fault: str = ""


def measured_rows(work: Work) -> list[RowMeasured]:
    from torch import distributed

    harness, rank, world_size = CaseHarness(work.case), distributed.get_rank(), distributed.get_world_size()
    config = harness.values(devices=world_size, **harness.quick_changes(**work.changes))
    with FAULTS[work.fault](rank) if work.fault else contextlib.nullcontext():
        events = harness.run(config, rank=rank, world_size=world_size, per_node=work.per_node)
    return [event for event in events if isinstance(event, RowMeasured)]


def _unsupported(_rank: int) -> contextlib.AbstractContextManager[Any]:
    error = RuntimeError("ProcessGroup does not support alltoall: not supported")
    return mock.patch("torch.distributed.all_to_all_single", side_effect=error)


@contextlib.contextmanager
def _one_element_wrong(rank: int) -> Iterator[None]:
    """On rank 1 alone."""
    from torch import distributed

    all_reduce = distributed.all_reduce

    def changed(tensor: Any, **arguments: Any) -> None:
        all_reduce(tensor, **arguments)
        if rank == 1 and tensor.numel() > 1:
            tensor[7] += 1

    with mock.patch("torch.distributed.all_reduce", changed):
        yield


@contextlib.contextmanager
def _only_the_first_call(_rank: int) -> Iterator[None]:
    """Of what the ranks send; the sums that they also agree by still work."""
    from torch import distributed

    names = ("all_gather_single", "all_gather_into_tensor", "reduce_scatter_single", "reduce_scatter_tensor")
    names += ("all_to_all_single", "broadcast", "send", "recv", "batch_isend_irecv")
    with contextlib.ExitStack() as stack:
        for name in names:
            if real := getattr(distributed, name, None):
                stack.enter_context(mock.patch(f"torch.distributed.{name}", _once(real)))
        yield


def _once(real: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count()

    def changed(*arguments: Any, **settings: Any) -> Any:
        return () if next(calls) else real(*arguments, **settings)

    return changed


@contextlib.contextmanager
def _no_memory(rank: int) -> Iterator[None]:
    """For what one rank gathers."""
    from flagperf_cases.collectives import case

    make = case.make_exchange

    def limited(operation: str, *arguments: Any) -> Any:
        if rank == 1 and operation == "all_gather":
            raise MemoryError("no room")
        return make(operation, *arguments)

    with mock.patch.object(case, "make_exchange", limited):
        yield


@contextlib.contextmanager
def _alone(rank: int) -> Iterator[None]:
    """The other rank waits for it."""
    error = RuntimeError("cable pulled out") if rank == 1 else None
    with mock.patch.object(rank_sync, "PATIENCE_SECONDS", 0.3), _if(error):
        yield


def _if(error: Exception | None) -> contextlib.AbstractContextManager[Any]:
    if error is None:
        return contextlib.nullcontext()
    return mock.patch("torch.distributed.all_reduce", side_effect=error)


FAULTS: dict[str, Callable[[int], contextlib.AbstractContextManager[Any]]] = {
    "unsupported": _unsupported,
    "one element wrong": _one_element_wrong,
    "only the first call": _only_the_first_call,
    "no memory": _no_memory,
    "alone": _alone,
}
