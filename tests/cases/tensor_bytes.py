"""Measures how much memory tensors really take, operation by operation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from case_harness import CaseHarness, Changes
from rank_processes import answers_of_ranks


def case_bytes(folder: Path, world_size: int, case: str, runs: Sequence[Changes]) -> list[int]:
    """The peak of the fullest rank in each run of a case on the CPU. A single rank needs no process of its own."""
    if world_size == 1:
        harness = CaseHarness(case)
        return [most_tensor_bytes(partial(harness.run, harness.values(**changes))) for changes in runs]
    items = [(case, changes) for changes in runs]
    answers = answers_of_ranks(folder, world_size, _bytes_of_rank, items, [f"flagperf_cases.{case}.case"])
    return [max(ranks) for ranks in answers]


def _bytes_of_rank(item: tuple[str, Changes]) -> int:
    from torch import distributed

    case, changes = item
    harness = CaseHarness(case)
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    values = harness.values(devices=world_size, **changes)
    return most_tensor_bytes(lambda: harness.run(values, None, rank, world_size))


def most_tensor_bytes(function: Callable[[], Any]) -> int:
    """The most that was held at one time by the tensors that `function` made, each storage once and as large as it is
    at that time."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    held: dict[int, weakref.ref[Any]] = {}
    most = 0

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal most
            answer = func(*args, **(kwargs or {}))
            made = {storage._cdata: storage for storage in map(_storage, tree_leaves(answer)) if storage is not None}
            made = {key: storage for key, storage in made.items() if storage.device.type == "cpu"}
            if all(key in held and held[key]() is not None for key in made):
                return answer  # in place or a view: nothing was allocated
            held.update({key: weakref.ref(storage) for key, storage in made.items()})
            alive = {key: storage for key, link in held.items() if (storage := link()) is not None}
            for key in held.keys() - alive.keys():
                del held[key]
            most = max(most, sum(storage.nbytes() for storage in alive.values()))
            return answer

    with Watch():
        function()
    return most


def _storage(value: Any) -> Any:
    from torch import Tensor

    own = getattr(value, "_local_tensor", value)
    own = getattr(own, "elem", own)
    return own.untyped_storage() if isinstance(own, Tensor) else None
