"""memory_capacity on the CPU, within a bound, and on a device that has less than it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from case_harness import CaseHarness, rows

from flagperf.builtin.cpu import CpuBackend
from flagperf.errors import Unsupported
from flagperf_cases.memory_capacity import case
from flagperf_cases.sizes import GIB, MIB

CASE = CaseHarness("memory_capacity")
LIMIT = {"memory_capacity__limit_bytes": 5 * MIB}


class OwnMemory(CpuBackend):
    """Its memory is not the host's, and it has 7 MiB of it."""

    memory_scope = "device"


@pytest.fixture
def seven_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator refuses what does not fit, as that of a card does."""
    original, held = torch.empty, []

    def empty(*size: Any, **options: Any) -> torch.Tensor:
        if options.get("device") != "cpu":
            return original(*size, **options)
        if sum(held) + 4 * size[0] > 7 * MIB:
            raise torch.OutOfMemoryError("out of memory: tried to allocate")
        held.append(4 * size[0])
        return original(*size, **options)

    monkeypatch.setattr(torch, "empty", empty)


def test_a_bound_is_reached_exactly_and_is_no_capacity() -> None:
    capacity, share = rows(CASE.run(CASE.values(**LIMIT), memory_bytes=GIB))
    assert capacity.values == (5 * MIB,) and capacity.unit == "bytes"
    assert capacity.labels == share.labels == {"devices": "single", "until": "limit"}
    assert share.values == (5 / 1024,)
    figures = {figure.where["until"] for figure in CASE.manifest().figures}
    assert figures == {"out_of_memory"}


@pytest.mark.usefixtures("seven_mib")
def test_without_a_bound_it_ends_where_memory_runs_out() -> None:
    capacity, share = rows(CASE.run(CASE.values("standard"), backend=OwnMemory(), memory_bytes=8 * MIB))
    assert capacity.values == (7 * MIB,) and share.values == (7 / 8,)
    assert capacity.labels["until"] == "out_of_memory"


@pytest.mark.usefixtures("seven_mib")
def test_more_than_the_device_has_in_all_is_invalid() -> None:
    with pytest.raises(RuntimeError, match=r"no row could be measured; .* bytes were written, but the device reports"):
        CASE.run(CASE.values("standard"), backend=OwnMemory(), memory_bytes=6 * MIB)


def test_memory_that_is_given_out_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chunk is the first again."""
    original, given = torch.empty, []

    def empty(*size: Any, **options: Any) -> torch.Tensor:
        if options.get("device") != "cpu":
            return original(*size, **options)
        given.append(original(*size, **options) if not given else given[0][: size[0]])
        return given[-1]

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(RuntimeError, match="256 pages of 4 KiB do not hold what was written there"):
        CASE.run(CASE.values(**LIMIT), memory_bytes=GIB)


def test_another_error_than_out_of_memory_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "_pieces_of", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        CASE.run(CASE.values(**LIMIT))


def test_the_host_is_not_filled() -> None:
    with pytest.raises(Unsupported, match=r"share the host's memory, .*; set a bound: --set memory_capacity.limit_by"):
        CASE.run(CASE.values("standard"), memory_bytes=GIB)
    with pytest.raises(Unsupported, match=r"more than half of the host's 0\.25 GiB"):
        CASE.run(CASE.values(), memory_bytes=GIB // 4)


def test_a_device_that_does_not_report_its_size_has_no_share() -> None:
    capacity, share = rows(CASE.run(CASE.values(**LIMIT)))
    assert capacity.status == "ok" and (share.values, share.status) == ((), "error")
