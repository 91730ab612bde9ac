"""What a rank leaves behind that failed: its finished steps, its allocator's peaks, and always its ending."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from context_fakes import SpyBackend, World, make_context

from flagperf.api import AllocatorMemory
from flagperf.events import StepFinished, WorkerEnded
from flagperf.worker import __main__ as worker


def failed_after(world: World, num_steps: int) -> Any:
    """A context whose case failed inside a step; nothing of it has been written yet."""
    context = make_context(world, events=True, flush_seconds=1e9)
    with pytest.raises(ValueError, match="asked to"), context.training():
        for number in range(num_steps + 1):
            with context.step() as step:
                world.launch(100)
                if number == num_steps:
                    raise ValueError("it was asked to")
                step.done(samples=4, loss=1.0)
    assert not world.of(StepFinished)
    return context


def failure_of(world: World, context: Any, backend: Any = None) -> WorkerEnded:
    error = ValueError("it was asked to")
    return worker._failed(backend or context._backend, world, context, error)  # type: ignore[arg-type]


def test_steps_that_were_finished_before_a_failure_are_written(world: World) -> None:
    failure_of(world, failed_after(world, 3))
    assert [step.compute_ns for step in world.of(StepFinished)] == [100, 100, 100]


def test_a_device_that_fails_again_does_not_hide_the_first_failure(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    context = failed_after(world, 3)

    def broken() -> None:
        raise RuntimeError("the device is gone")

    context._backend.synchronize = broken
    assert failure_of(world, context).reason == "ValueError: it was asked to"
    assert not world.of(StepFinished)
    assert "the device is gone" in capfd.readouterr().err


@pytest.mark.parametrize("call", ["synchronize", "allocator_memory", "is_out_of_memory"])
def test_a_device_that_does_not_answer_any_more_does_not_hold_up_the_ending(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    world = World()
    context, left, logged = failed_after(world, 1), threading.Event(), []

    def leave(_code: int) -> None:
        logged.append(capfd.readouterr().err)
        left.set()

    def run_case(_context: Any) -> None:
        raise ValueError("it was asked to")

    monkeypatch.setattr(worker, "SAVE_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_leave", leave)
    backend = context._backend
    monkeypatch.setattr(backend, "has_allocator", True, raising=False)
    monkeypatch.setattr(backend, "allocator_memory", lambda: AllocatorMemory(70, 100))
    monkeypatch.setattr(backend, call, lambda *_: left.wait(600) and None)
    worker._outcome(backend, world, lambda: context, run_case)  # type: ignore[arg-type]
    assert left.is_set()
    (ended,) = world.of(WorkerEnded)
    assert (ended.status, ended.reason) == ("failed", "ValueError: it was asked to")
    assert "ValueError: it was asked to" in logged[0]


class CountingBackend(SpyBackend):
    def allocator_memory(self) -> AllocatorMemory:
        return AllocatorMemory(70, 100)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return "memory" in str(error)


def test_a_rank_that_ran_out_of_memory_says_what_its_allocator_had() -> None:
    def prepare() -> Any:
        raise RuntimeError("no memory left")

    ended = worker._outcome(CountingBackend(World()), World(), prepare, print)  # type: ignore[arg-type]
    assert (ended.status, ended.allocator_peak_allocated_bytes) == ("out_of_memory", 70)
    assert ended.allocator_peak_reserved_bytes == 100


def test_an_allocator_that_fails_after_a_failure_is_not_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(SpyBackend):
        def allocator_memory(self) -> AllocatorMemory:
            raise RuntimeError("no such device")

    def prepare() -> Any:
        raise ValueError("it was asked to")

    ended = worker._outcome(Broken(World()), World(), prepare, print)  # type: ignore[arg-type]
    assert (ended.status, ended.reason) == ("failed", "ValueError: it was asked to")
    assert ended.allocator_peak_reserved_bytes is None
    assert "no such device" in capfd.readouterr().err
