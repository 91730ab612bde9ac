"""host_to_device on the CPU, where nothing crosses a link, and how two directions are issued at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from case_harness import CaseHarness, rows

from flagperf.worker import WrongOutput
from flagperf_cases.host_to_device import case

CASE = CaseHarness("host_to_device")


def test_on_the_cpu_a_plain_copy_says_that_it_crosses_no_link() -> None:
    found = {(row.labels["direction"], row.labels["memory"]): row for row in rows(CASE.run(CASE.quick()))}
    assert {row.labels["path"] for row in found.values()} == {"same memory"}
    measured = {name for name, row in found.items() if row.status == "ok"}
    assert measured == {("h2d", "pageable"), ("d2h", "pageable")}
    assert {row.status for name, row in found.items() if name not in measured} == {"unsupported"}
    assert "the device's memory is the host's" in found["both", "pageable"].problem
    assert found["h2d", "pageable"].work == {"bytes": 65536}
    figures = {figure.name: figure.where["path"] for figure in CASE.manifest().figures}
    assert [name for name, path in figures.items() if path == "same memory"] == ["same_memory_copy"]


def test_pinned_and_pageable_never_share_a_figure() -> None:
    for figure in CASE.manifest().figures:
        assert figure.where["memory"] in ("pinned", "pageable") and "class" in figure.where


def test_what_did_not_arrive_is_wrong() -> None:
    source = torch.randn(5000)
    case.check_arrival(((source.clone(), source),))
    damaged = source.clone()
    damaged[4999] += 1
    with pytest.raises(WrongOutput, match="what arrived differs"):
        case.check_arrival(((source.clone(), source), (damaged, source)))


class Spy:
    """In place of a device's streams."""

    def __init__(self) -> None:
        self.journal: list[str] = []

    @contextmanager
    def forked(self) -> Iterator[None]:
        self.journal.append("fork")
        yield
        self.journal.append("join")

    def beside(self, copy: Callable[[], Any]) -> Any:
        self.journal.append("beside")
        return copy()


def test_directions_of_pinned_memory_are_issued_to_two_streams_without_waiting() -> None:
    spy = Spy()
    call = case._both_issued(spy, lambda: spy.journal.append("h2d"), lambda: spy.journal.append("d2h"))
    call()
    assert spy.journal == ["fork", "beside", "d2h", "h2d", "join"]


def test_directions_of_pageable_memory_are_under_way_at_the_same_time() -> None:
    """Each waits for the other one to have begun."""
    meeting = threading.Barrier(2, timeout=60)
    call = case._both_in_threads(Spy(), meeting.wait, meeting.wait)
    assert sorted(call()) == [0, 1]
