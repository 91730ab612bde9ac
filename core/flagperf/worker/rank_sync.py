"""Ranks that wait for each other on the host."""

from __future__ import annotations

import datetime
import functools
import operator
import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

# Collectives that the worker and the cases need, on the worker's process group.


def sum_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[float]:
    """Add in float64 on the host, in rank order."""
    gathered = gather_over_ranks(values, world_size, device)
    return [functools.reduce(operator.add, of_one) for of_one in zip(*gathered, strict=True)]


def max_over_ranks(value: float, world_size: int, device: str) -> float:
    return max(of_rank[0] for of_rank in gather_over_ranks([value], world_size, device))


def gather_over_ranks(values: Sequence[float], world_size: int, device: str) -> list[list[float]]:
    """Return the values of every rank, in the order of the ranks. Some cards have no float64, so the values are
    transferred as raw bits."""
    if world_size == 1:
        return [[float(value) for value in values]]
    import torch

    mine = torch.tensor(list(values), dtype=torch.float64).view(torch.int64).to(device)
    of_all = [torch.empty_like(mine) for _ in range(world_size)]
    torch.distributed.all_gather(of_all, mine)
    return [[float(value) for value in row] for row in torch.stack(of_all).cpu().view(torch.float64)]


# Ranks that work together: how they wait for each other, agree, and find out that one of them has failed alone.
#
# They wait on the host, through the store of their process group. A collective would keep the waiting devices busy,
# and ends with an error after the time limit of its library.


FOREVER = datetime.timedelta(days=7)
"""If a rank dies, the launcher ends those that wait for it."""

PATIENCE_SECONDS = 60.0
"""Until others have failed like this rank."""

POLL_SECONDS = 0.1

_used: Counter[str] = Counter()
"""Number of times that this process has used a name. Ranks do the same things in the same order, so that they count
alike."""


class Partners(Protocol):
    """Those that take part in every call of a row."""

    def agree(self, value: float) -> float:
        """Return the largest value that any partner passed: they must make equally many calls."""

    def confirm_failure(self, problem: str) -> None:
        """Raise if the others have not failed as well: they wait in a call that this rank will never make."""


class Nobody:
    """This rank alone."""

    def agree(self, value: float) -> float:
        return float(value)

    def confirm_failure(self, problem: str) -> None:
        pass


class Ranks:
    """All ranks of the job, as one of them sees them."""

    def __init__(self, rank: int, world_size: int, device: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device

    def meet(self) -> None:
        """Wait on the host until every rank is here, for as long as it takes."""
        if self.world_size == 1:
            return
        store, name = _store(), _next("meet")
        if store.add(f"{name}/arrived", 1) == self.world_size:
            store.set(f"{name}/complete", "yes")
        store.wait([f"{name}/complete"], FOREVER)

    def all_together(self) -> Partners:
        return _Everyone(self, _next("all")) if self.world_size > 1 else Nobody()

    def some_together(self, members: Collection[int]) -> Partners:
        """Return the partners among the ranks `members`, to which this one belongs."""
        among = sorted(set(members))
        if self.rank not in among:
            raise ValueError(f"rank {self.rank} is not one of the ranks {among} that work together")
        return _Some(self, among, _next("some/" + "-".join(map(str, among)))) if len(among) > 1 else Nobody()


class _Everyone:
    """Agrees by a collective: there may be thousands."""

    def __init__(self, ranks: Ranks, name: str) -> None:
        self._ranks = ranks
        self._name = name

    def agree(self, value: float) -> float:
        return max_over_ranks(value, self._ranks.world_size, self._ranks.device)

    def confirm_failure(self, problem: str) -> None:
        _confirm_failure(self._name, self._ranks.rank, self._ranks.world_size, problem)


class _Some:
    """Agrees through the store: the others take no part in it."""

    def __init__(self, ranks: Ranks, members: list[int], name: str) -> None:
        self._rank = ranks.rank
        self._members = members
        self._name = name
        self._num_agreed = 0

    def agree(self, value: float) -> float:
        store, place = _store(), f"{self._name}/agree/{self._num_agreed}"
        self._num_agreed += 1
        store.set(f"{place}/{self._rank}", float(value).hex())
        keys = [f"{place}/{member}" for member in self._members]
        store.wait(keys, FOREVER)
        return max(float.fromhex(store.get(key).decode()) for key in keys)

    def confirm_failure(self, problem: str) -> None:
        _confirm_failure(self._name, self._rank, len(self._members), problem)


def _next(what: str) -> str:
    """Return a place in the store that only this use has."""
    _used[what] += 1
    return f"flagperf/{what}/{_used[what]}"


def _confirm_failure(name: str, rank: int, num_members: int, problem: str) -> None:
    store, key = _store(), f"{name}/failed"
    num_failed, began = store.add(key, 1), time.monotonic()
    while num_failed < num_members:
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise RuntimeError(f"rank {rank} failed in a call that other ranks take part in: {problem}")
        time.sleep(POLL_SECONDS)
        num_failed = store.add(key, 0)


def _store() -> Any:
    """Return the store of the process group that the worker has joined."""
    import torch

    return torch.distributed.distributed_c10d._get_default_store()
