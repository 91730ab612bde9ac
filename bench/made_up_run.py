"""The bundle of a made-up training run on many nodes: every file that a real one has, of real size.

Of the ranks and nodes, only a few differ in their figures; the others repeat those, so that gigabytes are written in
seconds. Reading is not faster for it: no reader knows.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from flagperf import version
from flagperf.api import Device, LaunchCommand, Reading, Setting
from flagperf.bundle.bundle import create_bundle, environment_fingerprint, job_fingerprints, planned_fields
from flagperf.bundle.paths import PARENT_EVENTS, node_log, node_samples, rank_events, rank_log
from flagperf.bundle.run_record import STORE_SCHEMA, Run
from flagperf.event_files import EventWriter
from flagperf.events import (
    EVENT_SCHEMA,
    Clock,
    CpuUse,
    DataDescribed,
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
from flagperf.fleet.reach import reach_nodes
from flagperf.metrics.registry import metric_versions
from flagperf.plan.plan import Plan, make_plan
from flagperf.plugins.installed import load_plugins
from flagperf.spec.job import Job, PlannedNode, RunSpec
from flagperf.spec.node_facts import NodeFacts, VendorFacts
from flagperf.units import SECOND_NS

DEVICES_PER_NODE = 8
NUM_STEPS, STEP_NS, EVALUATE_EVERY = 750, 800_000_000, 250
EVALUATION_NS, START_SECONDS = 5_000_000_000, 45
NUM_NODES_THAT_DIFFER = 4
BEGAN_NS = 40 * SECOND_NS
MEMORY_BYTES = 64 << 30


def make_bundle(runs_dir: Path, num_nodes: int, num_steps: int = NUM_STEPS) -> Path:
    """As the processes of the run leave it; the parent has not computed any metric yet."""
    num_samples = _num_samples(num_steps)
    plan = _plan(num_nodes)
    run = Run(
        schema=STORE_SCHEMA, id=plan.job.run_id, created="2026-01-02T03:04:05+00:00", flagperf_version=version(),
        spec=plan.spec, job=plan.job, manifest=plan.manifest, metric_versions=metric_versions(plan.manifest),
    )  # fmt: skip
    bundle = create_bundle(runs_dir, run, plan.nodes)
    _write_parent(bundle, plan.job, num_samples)
    _write_ranks(bundle, plan.job, num_steps)
    _write_samples(bundle, plan.job, num_samples)
    return bundle


def _num_samples(num_steps: int) -> int:
    """One each second: the steps, the evaluations and the start."""
    return START_SECONDS + (num_steps * STEP_NS + num_steps // EVALUATE_EVERY * EVALUATION_NS) // SECOND_NS


def _plan(num_nodes: int) -> Plan:
    """That of a real case, for cards that no machine has."""
    spec, plugins = RunSpec("distilbert", vendor="cpu"), load_plugins()
    with reach_nodes(spec, plugins) as fleet:
        plan = make_plan(spec, plugins, fleet, needs_worker=False)
    spec = msgspec.structs.replace(plan.spec, nodes=num_nodes, devices=DEVICES_PER_NODE)
    nodes = tuple(
        PlannedNode(index, f"10.0.{index >> 8}.{index & 255}", _host(index), _cards(index), 96)
        for index in range(num_nodes)
    )
    run_id = f"20260102T030405Z-distilbert-acme-{num_nodes}x{DEVICES_PER_NODE}-abc123"
    job = msgspec.structs.replace(
        plan.job, run_id=run_id, vendor="acme", nodes=nodes, memory_scope="device", has_allocator=True, host_workers=0
    )
    facts = tuple(_facts(plan.nodes[0], node) for node in nodes)
    return msgspec.structs.replace(plan, spec=spec, job=job, nodes=facts)


def _host(index: int) -> str:
    return f"node{index:04d}"


def _cards(node_index: int) -> tuple[Device, ...]:
    return tuple(
        Device(
            id=_card_id(node_index, slot), model="Acme A900", short_name="A900", physical_index=slot,
            memory_bytes=MEMORY_BYTES, uuid=_card_id(node_index, slot), pci_address=f"0000:{slot + 16:02x}:00.0",
            near_cpus="0-47,96-143" if slot < 4 else "48-95,144-191", properties={"vbios": "96.00.68", "part": "900"},
        )
        for slot in range(DEVICES_PER_NODE)
    )  # fmt: skip


def _card_id(node_index: int, slot: int) -> str:
    return f"GPU-0f1e2d3c-{node_index:04d}-4a5b-8c6d-00000000000{slot}"


def _facts(real: NodeFacts, node: PlannedNode) -> NodeFacts:
    """This machine's own, with the made-up cards beside what it has."""
    acme = VendorFacts("acme", "flagperf-acme 1.0", real.vendors[0].presence, devices=node.devices)
    return msgspec.structs.replace(real, host=node.host, vendors=(*real.vendors, acme))


def _clock(node_index: int) -> Clock:
    return Clock(_host(node_index), f"boot-{node_index}", 4711, "2026-01-02T03:04:05.678+00:00")


# --- parent ---------------------------------------------------------------------------------------------------------


def _write_parent(bundle: Path, job: Job, num_samples: int) -> None:
    with EventWriter(bundle / PARENT_EVENTS) as writer:
        writer.write(
            RunStarted(
                0,
                EVENT_SCHEMA,
                Clock("parent", "boot-parent", 1, "2026-01-02T03:04:05.678+00:00"),
                planned_fields(bundle),
                environment_fingerprint(bundle),
            )
        )
        nodes = range(len(job.nodes))
        writer.write(*(WorkersLaunched(SECOND_NS + index, index, SECOND_NS, _command(index)) for index in nodes))
        end_ns = BEGAN_NS + (num_samples - 30) * SECOND_NS
        writer.write(*(WorkersEnded(end_ns + index, index, end_ns, 0) for index in nodes))
        writer.write(RunEnded(end_ns + SECOND_NS, "succeeded"))


def _command(index: int) -> LaunchCommand:
    variables = {
        "MASTER_ADDR": "10.0.0.0",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "24",
        "GLOO_SOCKET_IFNAME": "ib0",
    }
    settings = tuple(Setting(name, value, "of the launcher") for name, value in variables.items())
    arguments = ("--nnodes", "1000", "--node-rank", str(index), "--nproc-per-node", "8", "-m", "flagperf.worker")
    return LaunchCommand(("/opt/venv/bin/python", "-m", "torch.distributed.run", *arguments), settings)


# --- ranks ----------------------------------------------------------------------------------------------------------


def _write_ranks(bundle: Path, job: Job, num_steps: int) -> None:
    warmup_steps = job.config.values["training"]["warmup_steps"]
    ranks = range(min(NUM_NODES_THAT_DIFFER, len(job.nodes)) * DEVICES_PER_NODE)
    rest = [_lines(_rank_events(random.Random(rank), warmup_steps, num_steps)) for rank in ranks]
    received = job_fingerprints(bundle)
    for node in job.nodes:
        for local_rank, device in enumerate(node.devices):
            rank = node.index * DEVICES_PER_NODE + local_rank
            start = WorkerStarted(
                t_ns=BEGAN_NS - 20 * SECOND_NS, schema=EVENT_SCHEMA, clock=_clock(node.index), rank=rank,
                local_rank=local_rank, node_index=node.index, world_size=job.world_size, device_id=device.id,
                mapping="uuid", timing="device_events", framework={"torch": "2.6.0", "threads": "24"},
                precision=job.precision.name, batch_size=job.batch_size, job=received[node.index],
            )  # fmt: skip
            (bundle / rank_events(rank)).write_bytes(_lines([start]) + rest[rank % len(rest)])
            (bundle / rank_log(rank)).write_bytes(b"")


def _rank_events(source: random.Random, warmup_steps: int, num_steps: int) -> Iterator[Event]:
    yield DataDescribed(BEGAN_NS - 9 * SECOND_NS, "synthetic train", 2048, "ab" * 32)
    yield ModelDescribed(BEGAN_NS - 8 * SECOND_NS, 66_955_010, 43_057_920, 6, 12, 64, 512, causal=False)
    yield SpanBegan(BEGAN_NS, "training", num_steps)
    now_ns = flushed_ns = BEGAN_NS
    for number in range(1, num_steps + 1):
        wait_ns, compute_ns = source.randrange(100_000, 900_000), STEP_NS - source.randrange(2_000_000, 40_000_000)
        began_ns, now_ns = now_ns + wait_ns, now_ns + STEP_NS
        tokens = source.randrange(4000, 9000)
        work = {"samples": 32, "tokens": tokens, "padded_tokens": 32 * 512 - tokens}
        yield StepFinished(now_ns, number, began_ns, compute_ns, wait_ns, work, loss=source.random())
        if number == warmup_steps or now_ns - flushed_ns > SECOND_NS:
            yield SpanEnded(now_ns + 100_000, "logging", now_ns, number)
            now_ns = flushed_ns = now_ns + 100_000
        if number == warmup_steps:
            yield WarmupEnded(now_ns, number)
        if number % EVALUATE_EVERY == 0:
            yield SpanEnded(now_ns + EVALUATION_NS, "evaluation", now_ns, number)
            now_ns += EVALUATION_NS
            yield Reported(now_ns, number, {"acc": 0.95, "evaluated": 872.0, "correct": 828.0})
    yield SpanEnded(now_ns, "training", BEGAN_NS, num_steps)
    yield WorkerEnded(now_ns + SECOND_NS, "succeeded", "", 30 << 30, 36 << 30)


# --- samples --------------------------------------------------------------------------------------------------------


def _write_samples(bundle: Path, job: Job, num_samples: int) -> None:
    different = range(min(NUM_NODES_THAT_DIFFER, len(job.nodes)))
    rest = [_lines(_sample_events(random.Random(index), num_samples)) for index in different]
    for node in job.nodes:
        start = ProbeStarted(SECOND_NS, EVENT_SCHEMA, _clock(node.index), node.index, "acme", "acme-smi", 1.0)
        own = rest[node.index % len(rest)]
        for slot, device in enumerate(node.devices):
            own = own.replace(_card_id(0, slot).encode(), device.id.encode())
        (bundle / node_samples(node.index)).write_bytes(_lines([start]) + own)
        for process in ("launcher", "probe", "agent"):
            (bundle / node_log(process, node.index)).write_bytes(b"")


def _sample_events(source: random.Random, num_samples: int) -> Iterator[Event]:
    yield Sampled(SECOND_NS, _readings(source, 0), baseline=True)
    for second in range(1, num_samples + 1):
        moment_ns = second * SECOND_NS + source.randrange(5_000_000)
        yield Sampled(moment_ns, _readings(source, second), cpu=CpuUse(192, 90.5 * second, 88.25 * second))
    yield ProbeEnded((num_samples + 1) * SECOND_NS, 2.5, float(num_samples))


def _readings(source: random.Random, second: int) -> tuple[Reading, ...]:
    is_busy = second > 40
    return tuple(
        Reading(
            device_id=_card_id(0, slot),
            used_bytes=source.randrange(36 << 30, 38 << 30) if is_busy else 512 << 20,
            total_bytes=MEMORY_BYTES,
            utilisation_percent=float(source.randrange(85, 101) if is_busy else 0),
            power_watts=source.randrange(3000, 4200) / 10 if is_busy else 60.5,
            temperature_celsius=float(source.randrange(50, 70)),
            energy_joules=1e6 + 350.125 * second,
            clock_mhz=float(source.randrange(1300, 1411)),
            throttle_reasons=("power cap",) if is_busy and source.random() < 0.05 else (),
        )
        for slot in range(DEVICES_PER_NODE)
    )


def _lines(events: Sequence[Event] | Iterator[Event]) -> bytes:
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


if __name__ == "__main__":
    print(make_bundle(Path(sys.argv[1]), *map(int, sys.argv[2:])))
