"""Small jobs, manifests and event streams. Times are in seconds here and nanoseconds in the events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from flagperf.api import Device, LaunchCommand, Peak, Reading, precision
from flagperf.event_files import EventFile
from flagperf.events import (
    EVENT_SCHEMA,
    Clock,
    Event,
    ModelDescribed,
    ProbeEnded,
    ProbeStarted,
    Reported,
    RunEnded,
    RunStarted,
    Sampled,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WarmupEnded,
    WorkerEnded,
    WorkersEnded,
    WorkersLaunched,
    WorkerStarted,
)
from flagperf.metrics.entry import Metric, Record
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics
from flagperf.spec.job import Job, PlannedNode
from flagperf.spec.manifest import Manifest, Quality, Target
from flagperf.spec.values import Resolved, nest
from run_builders import minimal_job, minimal_manifest

GIB = 1 << 30
MIB = 1 << 20
EMPTY = EventFile(())

# 6 x 680 + 12 x 160 = 6000 by `exact`; 6 x 1000 + 12 x 160 = 7920 by `palm`; 6 x 900 = 5400 by `nominal-6n`.
MODEL = ModelDescribed(
    t_ns=0,
    parameters=1000,
    matmul_parameters=680,
    layers=1,
    heads=1,
    head_size=10,
    sequence=16,
    causal=False,
    nominal_parameters=900,
)
PEAK = Peak(model="Card A", row="fp16", value=1e6, source="vendor manual, page 3", confidence="high")
ACC = Quality("acc", "share", "right / all", minimum=0.0, maximum=1.0)

COMMAND = LaunchCommand(("torchrun",))


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def make_job(devices_of_nodes: Sequence[int] = (1,), warmup_steps: int = 0, **changes: Any) -> Job:
    values = nest({"training.warmup_steps": warmup_steps, "evaluation.target": 0.75})
    job = minimal_job(
        precision=precision("fp16"),
        vendor="acme",
        config=Resolved(values, {}, {}),
        nodes=tuple(_node(index, count) for index, count in enumerate(devices_of_nodes)),
        host_workers=0,
        memory_scope="device",
        has_allocator=True,
        peaks=(PEAK,),
        sample_seconds=10.0,
    )
    return msgspec.structs.replace(job, **changes)


def _node(index: int, count: int) -> PlannedNode:
    devices = tuple(Device(f"card-{slot}", "Card A", "A", slot, 16 * GIB) for slot in range(count))
    return PlannedNode(index, f"node-{index}", f"node-{index}", devices, 8)


def make_manifest(**changes: Any) -> Manifest:
    manifest = minimal_manifest(
        precisions=("fp16",), values={}, profiles={}, qualities=(ACC,), target=Target("acc"), mfu_formula="exact"
    )
    return msgspec.structs.replace(manifest, **changes)


def started(rank: int = 0, node_index: int = 0, **changes: Any) -> WorkerStarted:
    event = WorkerStarted(
        t_ns=0,
        schema=EVENT_SCHEMA,
        clock=clock(f"boot-{node_index}"),
        rank=rank,
        local_rank=rank,
        node_index=node_index,
        world_size=1,
        device_id=f"card-{rank}",
        mapping="uuid",
        timing="device_events",
    )
    return msgspec.structs.replace(event, **changes)


def clock(boot_id: str = "boot-0") -> Clock:
    return Clock(host="h", boot_id=boot_id, pid=1, wall="2024-01-01T00:00:00+00:00")


def succeeded(reserved_bytes: int | None = None, at: float = 1000.0) -> WorkerEnded:
    return WorkerEnded(
        ns(at), "succeeded", allocator_peak_allocated_bytes=reserved_bytes, allocator_peak_reserved_bytes=reserved_bytes
    )


def began(at: float, name: str = "training") -> SpanBegan:
    return SpanBegan(ns(at), name)


def warm(at: float, step: int) -> WarmupEnded:
    return WarmupEnded(ns(at), step)


def ended(at: float, name: str = "training") -> SpanEnded:
    return SpanEnded(ns(at), name, began_ns=0, step=0)


def evaluated(start: float, end: float) -> SpanEnded:
    return SpanEnded(ns(end), "evaluation", began_ns=ns(start), step=0)


def logged(start: float, end: float) -> SpanEnded:
    return SpanEnded(ns(end), "logging", began_ns=ns(start), step=0)


def reported(step: int = 0, **values: float) -> Reported:
    return Reported(0, step=step, values=values)


def step(
    number: int,
    start: float,
    end: float,
    compute: float | None = None,
    wait: float = 0.0,
    samples: int = 1,
    tokens: int = 0,
    padded_tokens: int = 0,
    **more: Any,
) -> StepFinished:
    """Computes from start to end unless told otherwise."""
    compute_ns = ns(end - start if compute is None else compute)
    work = {"samples": samples, "tokens": tokens, "padded_tokens": padded_tokens}
    return StepFinished(
        ns(end), step=number, began_ns=ns(start), compute_ns=compute_ns, wait_ns=ns(wait), work=work, **more
    )


def steps_of_a_second(count: int, start: float = 0.0, first: int = 1, **more: Any) -> list[StepFinished]:
    return [step(first + index, start + index, start + index + 1, **more) for index in range(count)]


def rank_file(*events: Event, rank: int = 0, torn: bool = False, end: WorkerEnded | None = None) -> EventFile:
    """A worker that starts, does `events` and succeeds."""
    return EventFile((started(rank), *events, end or succeeded()), torn)


def parent_file(*nodes: tuple[float, float], launch: float = 0.0, returncode: int = 0) -> EventFile:
    """Per node when its workers were launched and ended. The node's clock is 100 s ahead of the parent's."""
    launches = [WorkersLaunched(ns(at), index, ns(at + 100), COMMAND) for index, (at, _) in enumerate(nodes)]
    ends = [WorkersEnded(ns(at), index, ns(at + 100), returncode) for index, (_, at) in enumerate(nodes)]
    return EventFile((RunStarted(0, 1, clock()), *launches, *ends, RunEnded(ns(9999), "succeeded")))


def sample(at: float, used: dict[str, int | None], total: int | None = 16 * GIB, baseline: bool = False) -> Sampled:
    return Sampled(ns(at), tuple(Reading(card, amount, total) for card, amount in used.items()), baseline)


def sample_file(
    *samples: Event, node_index: int = 0, cost: ProbeEnded | None = None, board_figures: tuple[str, ...] = ()
) -> EventFile:
    start = ProbeStarted(
        t_ns=0,
        schema=EVENT_SCHEMA,
        clock=clock(f"boot-{node_index}"),
        node_index=node_index,
        vendor="acme",
        probe="smi",
        interval_seconds=10.0,
        board_figures=board_figures,
    )
    return EventFile((start, *samples, *([cost] if cost else [])))


def record_of(*ranks: EventFile, parent: EventFile = EMPTY, samples: Iterable[EventFile] = ()) -> Record:
    return Record(parent, tuple(ranks), tuple(samples))


def metrics_of(job: Job, record: Record, manifest: Manifest | None = None) -> dict[str, Metric]:
    return {metric.name: metric for metric in compute_metrics(Observed(job, manifest or make_manifest(), record))}
