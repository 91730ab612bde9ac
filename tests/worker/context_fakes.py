"""A clock that moves only when it is told to, a device with a queue, and a journal of who did what in which order."""

from __future__ import annotations

from typing import Any

from flagperf.api import Activation, Device, DeviceBackend, Presence, TimingEvent, precision
from flagperf.event_files import EventFile
from flagperf.events import EVENT_SCHEMA, Clock, Event, SpanBegan, SpanEnded, WorkerEnded, WorkerStarted
from flagperf.kinds import KINDS
from flagperf.metrics.entry import Metric, Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.spec.values import Resolved
from flagperf.worker import Context
from run_builders import minimal_job, minimal_manifest


class World:
    """`copy_ns` and `write_ns` are what a copy to the device and a write to the sink take."""

    def __init__(self, copy_ns: int = 0, write_ns: int = 0) -> None:
        self.now_ns = 1_000
        self.device_free_ns = 0
        self.copy_ns = copy_ns
        self.write_ns = write_ns
        self.journal: list[str] = []
        self.events: list[Event] = []

    def clock(self) -> int:
        return self.now_ns

    def host(self, duration_ns: int) -> None:
        self.now_ns += duration_ns

    def launch(self, duration_ns: int) -> None:
        """Queue work: the host goes on at once, the device computes when it is free."""
        self.device_free_ns = max(self.now_ns, self.device_free_ns) + duration_ns

    def write(self, *events: Event) -> None:
        """The sink."""
        self.journal += [f"write {kind_of(event)}" for event in events]
        self.events += events
        self.now_ns += self.write_ns

    def end(self, event: Event) -> None:
        self.write(event)

    def loader(self, *batches: Any, wait_ns: int = 0) -> Any:
        for batch in batches:
            self.now_ns += wait_ns
            yield batch

    def kinds(self) -> list[str]:
        return [kind_of(event) for event in self.events]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def spans(self, name: str) -> list[SpanEnded]:
        return [span for span in self.of(SpanEnded) if span.name == name]


def kind_of(event: Event) -> str:
    """`StepFinished`, `logging ended`."""
    if isinstance(event, SpanBegan):
        return f"{event.name} began"
    return f"{event.name} ended" if isinstance(event, SpanEnded) else type(event).__name__


class SpyBackend(DeviceBackend):
    vendor = "spy"
    torch_type = "spy"
    collective_backend = "none"
    precisions = ("fp32",)

    def __init__(self, world: World) -> None:
        self.world = world

    def presence(self, machine: Any) -> Presence:
        return Presence("present", ("spy",))

    def devices(self, machine: Any) -> list[Device]:
        return []

    def activate(self, local_rank: int, num_threads: int, devices: list[Device]) -> Activation:
        return Activation("spy:0", "card-0", "uuid")

    def synchronize(self) -> None:
        self.world.journal.append("synchronize")
        self.world.now_ns = max(self.world.now_ns, self.world.device_free_ns)


class SpyBackendWithEvents(SpyBackend):
    has_timing_events = True

    def timing_event(self) -> TimingEvent:
        return SpyEvent(self.world)


class SpyEvent(TimingEvent):
    def __init__(self, world: World) -> None:
        self.world = world
        self.reached_ns = 0

    def record(self) -> None:
        self.world.journal.append("record")
        self.reached_ns = max(self.world.now_ns, self.world.device_free_ns)

    def elapsed_ns(self, later: TimingEvent) -> int:
        assert isinstance(later, SpyEvent)
        assert self.world.now_ns >= later.reached_ns, "a timing event was read before the device had come to it"
        self.world.journal.append("elapsed")
        return later.reached_ns - self.reached_ns


class Batch:
    """Stands for a tensor."""

    def __init__(self, world: World, device: str = "host") -> None:
        self.world = world
        self.device = device

    def to(self, device: str, non_blocking: bool = False) -> Batch:
        self.world.host(self.world.copy_ns)
        return Batch(self.world, device)


class Loss:
    """Reading it is an entry in the journal."""

    def __init__(self, world: World, value: float) -> None:
        self.world = world
        self.value = value

    def __float__(self) -> float:
        self.world.journal.append("read loss")
        return self.value


def make_context(
    world: World,
    *,
    events: bool = False,
    warmup_steps: int = 0,
    flush_seconds: float = 1.0,
    config: dict[str, Any] | None = None,
    world_size: int = 1,
    kind: str = "training",
) -> Context:
    backend = SpyBackendWithEvents(world) if events else SpyBackend(world)
    return Context(
        backend=backend,
        activation=backend.activate(0, 1, []),
        precision=precision("fp32"),
        kind=KINDS[kind],
        config=config or {"training": {"warmup_steps": warmup_steps}},
        sink=world,
        clock=world.clock,
        flush_seconds=flush_seconds,
        world_size=world_size,
    )


def new_world(copy_ns: int = 0, write_ns: int = 0, **options: Any) -> tuple[World, Context]:
    world = World(copy_ns, write_ns)
    return world, make_context(world, **options)


def metrics_of(world: World, *, events: bool = False, warmup_steps: int = 0) -> dict[str, Metric]:
    """What the world's events amount to as the only rank of a run that succeeded."""
    started = WorkerStarted(
        t_ns=0,
        schema=EVENT_SCHEMA,
        clock=Clock("h", "b", 1, "2025-01-02T03:04:05+00:00"),
        rank=0,
        local_rank=0,
        node_index=0,
        world_size=1,
        device_id="card-0",
        mapping="uuid",
        timing="device_events" if events else "synchronize",
    )
    rank = EventFile((started, *world.events, WorkerEnded(world.now_ns, "succeeded")))  # type: ignore[arg-type]
    record = Record(EventFile(()), (rank,), ())
    job = minimal_job(config=Resolved({"training": {"warmup_steps": warmup_steps}}, {}, {}), memory_scope="device")
    return {metric.name: metric for metric in compute_metrics(Observed(job, minimal_manifest(), record))}
