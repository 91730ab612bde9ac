"""A bundle with something that identifies in every field that may hold it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import (
    DataFile,
    Device,
    LaunchCommand,
    OperatorCall,
    Peak,
    Presence,
    ProcessReading,
    Reading,
    RecordedRanks,
    RecordedTensor,
    Recording,
    Setting,
)
from flagperf.bundle.bundle import (
    create_bundle,
    environment_fingerprint,
    planned_fields,
    read_record,
    seal,
    write_run,
)
from flagperf.bundle.operator_file import summary
from flagperf.bundle.run_record import Ending, Labels, Run, write_labels
from flagperf.event_files import EventWriter
from flagperf.events import (
    EVENT_SCHEMA,
    Clock,
    DataDescribed,
    Event,
    PartsReported,
    ProbeEnded,
    ProbeFailed,
    ProbeStarted,
    ProcessesListed,
    RowMeasured,
    RunEnded,
    RunStarted,
    Sampled,
    SampleMissed,
    SpanBegan,
    SpanEnded,
    StepFinished,
    WorkerEnded,
    WorkersEnded,
    WorkersLaunched,
    WorkerStarted,
)
from flagperf.messages import Message, message
from flagperf.metrics.observed import Observed
from flagperf.metrics.registry import compute_metrics, metric_versions
from flagperf.spec.job import PlannedNode, RunSpec, fingerprint
from flagperf.spec.node_facts import Environment, Fact, NodeFacts, VendorFacts
from flagperf.spec.protocol import work_orders
from flagperf.spec.values import Resolved
from run_builders import make_run

RUN_ID = "20260101T000000Z-demo-nova-2x2-abc123"
SECOND = 1_000_000_000
GIB = 1 << 30

HOSTS = ("gpu17.lab.bigcorp.example", "gpu4.lab.bigcorp.example")
CARDS = tuple(f"GPU-5f3a9c2e-{number}b11-4d2a-9f00-0a1b2c3d4e5f" for number in range(4))
PCI = tuple(f"0000:{bus}:00.0" for bus in ("3b", "5e", "af", "d8"))
BOOTS = ("b1c2d3e4-0000-4111-8222-333344445555", "c9d8e7f6-1111-4222-9333-444455556666")
SECRETS = {
    *HOSTS, *CARDS, *PCI, *BOOTS, "gpu17", "gpu4", "bigcorp", "storage-7.lab.bigcorp.example",
    "SN-00419231", "BOARD-77120", "UNIQ-5512", "10.20.30.41", "10.20.30.42", "fd00:17::4", "fe80::a1:b2",
    "a4:bf:01:2c:3d:4e", "enxa4bf012c3d4f", "0xe8ebd30300aabbcc", "f47ac10b-58cc-4372-a567-0e02b2c3d479",
    "alice", "bobby", "carol@bigcorp.example", "acme.example", "/data/projects/project-x",
    "3b:00.0", "1c:00.0", "0800.274e.66a1", "carol", "PF2ABCDE", "1323921012345",
    "acme", "registry.bigcorp.example:5000", "gpu[04-17]", "/opt/site/secret.toml", "moonshot",
}  # fmt: skip
"""What must not be anywhere in the redacted copy, in any case. `moonshot` is what the owner names with --also."""

TEXT = (
    "gpu17: alice at /home/alice/venv and /nfs/users/bobby/x, 10.20.30.41:29500, [fd00:17::4]:22, fe80::a1:b2, "
    f"{CARDS[2].upper()}, {PCI[1].upper()}, MAC A4:BF:01:2C:3D:4E on enxa4bf012c3d4f, guid 0xe8ebd30300aabbcc, "
    "f47ac10b-58cc-4372-a567-0e02b2c3d479, carol@bigcorp.example, storage-7.lab.bigcorp.example, SN-00419231, "
    "/data/projects/project-x/train.tsv; GPU4 for project moonshot; "
    "alice@acme.example, bobby@gpu17; 3b:00.0 and 1C:00.0, 0800.274e.66a1, C:\\Users\\carol, Serial Number: PF2ABCDE, "
    "S/N: 1323921012345, /data/acme/venv/lib/python3.11/site-packages; 127.0.0.1 and cpu:0 are nobody's"
)
SAID = message("tool.words", words=TEXT)


def device(number: int) -> Device:
    return Device(
        id=CARDS[number],
        model="Nova 9",
        short_name="N9",
        physical_index=number % 2,
        memory_bytes=64 * GIB,
        uuid=CARDS[number],
        pci_address=PCI[number],
        slice=f"half of {TEXT}",
        problem=TEXT,
        near_cpus="0-3",
        properties={"serial": "SN-00419231", "unique_id": "UNIQ-5512", "firmware": "7.1.2", "name": TEXT},
        board="BOARD-77120",
    )


def the_run() -> Run:
    run = make_run(RUN_ID)
    values = {"precision": "fp32", "training": {"batch_size": 4, "note": TEXT}}
    nodes = tuple(
        PlannedNode(index, f"10.20.30.4{index + 1}", HOSTS[index], (device(2 * index), device(2 * index + 1)), 8)
        for index in range(2)
    )
    layer = "file /opt/site/secret.toml"
    job = msgspec.structs.replace(
        run.job,
        vendor="nova",
        memory_scope="device",
        config=Resolved(values, {"training.note": layer}, {"training.note": layer}, (layer,)),
        nodes=nodes,
        master_address="10.20.30.41",
        peaks=(Peak("Nova 9", "fp32", 1e12, TEXT, "high", measured_by=f"/home/alice/runs/{RUN_ID}"),),
        data_dir="/data/projects/project-x",
        data_files=(DataFile("alice/train.tsv", 5, "0" * 64),),
    )
    spec = RunSpec(
        "demo",
        nodes=2,
        devices=2,
        set=(f"training.note={TEXT}",),
        config="/opt/site/secret.toml",
        data_dir="/data/projects/project-x",
        peak_from="/home/alice/runs/gemm",
        replay="/home/bobby/runs/other",
        cluster="ssh",
        cluster_options=("hosts=gpu[04-17]",),
        container="registry.bigcorp.example:5000/team/image:1",
        container_options=("mounts=/data/projects/project-x",),
        interface="enxa4bf012c3d4f",
    )
    versions = metric_versions(run.manifest)
    return msgspec.structs.replace(run, job=job, spec=spec, metric_versions=versions, flagperf_version="0.1.0")


def node_facts(index: int) -> NodeFacts:
    fact = Fact(TEXT, "stated", TEXT, SAID)
    environment = Environment({"machine": fact, "network": fact}, {"torch": "2.13.0"}, {"LD_PRELOAD": TEXT})
    readings = (Reading(CARDS[2 * index], used_bytes=1, missing={"power": TEXT}, properties={"serial": "SN-00419231"}),)
    vendor = VendorFacts(
        "nova",
        "flagperf-nova 1",
        Presence("present", (TEXT,), TEXT),
        devices=(device(2 * index), device(2 * index + 1)),
        versions={"driver": "535.1"},
        env_script="/home/alice/env.sh",
        readings=readings,
        probe=TEXT,
        error=TEXT,
    )
    return NodeFacts(HOSTS[index], environment, (vendor,), 8)


COMMAND = LaunchCommand(
    ("/data/acme/venv/bin/python", "--master", "10.20.30.41"), (Setting("NOVA_VISIBLE", CARDS[0], TEXT),)
)


def clock(index: int) -> Clock:
    return Clock(HOSTS[index], BOOTS[index], 4711, "2026-01-01T00:00:00.000+00:00")


def make_secret_bundle(folder: Path) -> Path:
    run = the_run()
    path = create_bundle(folder, run, (node_facts(0), node_facts(1)))
    for order in work_orders(run.job):
        _write_node(path, order.node_index, fingerprint(msgspec.to_builtins(order.job)))
    nodes = range(2)
    _write(
        path / "events" / "parent.jsonl",
        RunStarted(SECOND, EVENT_SCHEMA, clock(0), planned_fields(path), environment_fingerprint(path)),
        *(WorkersLaunched(2 * SECOND, index, 2 * SECOND, COMMAND, "/home/alice/env.sh") for index in nodes),
        *(WorkersEnded(19 * SECOND, index, 19 * SECOND, 0, SAID) for index in nodes),
        RunEnded(20 * SECOND, "failed", TEXT, SAID),
    )
    recording = Recording(
        1, RUN_ID, "demo", 1, "tiny", "fp32", "nova", "Nova 9", "2.13.0",
        [RecordedRanks([0, 1, 2, 3], 1, [RecordedTensor((2,), (1,), "float32")],
                       [OperatorCall("aten::load", 1, [TEXT], {"path": "/home/alice/x"})])],
        num_ranks=4,
    )  # fmt: skip
    (path / "operators.json").write_bytes(msgspec.json.encode(recording))
    for name in ("rank-00000", "node-000", "probe-000", "agent-001"):
        (path / "logs" / f"{name}.log").write_bytes(f"{TEXT}\r\n\xff".encode("latin-1") + TEXT.encode())
    observed = Observed(run.job, run.manifest, read_record(path))
    ended = msgspec.structs.replace(
        run,
        metrics=compute_metrics(observed),
        rows=observed.rows,
        ending=Ending("failed", TEXT, SAID),
        commands=(COMMAND, COMMAND),
        recorded=summary(recording, SAID),
    )
    write_run(path, ended)
    seal(path)
    write_labels(path, Labels(("moonshot",), "alice likes it"))
    return path


def _write_node(path: Path, index: int, job: str) -> None:
    for local in range(2):
        rank = 2 * index + local
        _write(path / "events" / f"rank-{rank:05d}.jsonl", *_rank_events(index, local, job))
    cards = CARDS[2 * index : 2 * index + 2]
    _write(
        path / "samples" / f"node-{index:03d}.jsonl",
        ProbeStarted(SECOND, EVENT_SCHEMA, clock(index), index, "nova", "smi", 1.0, {"nova-lib": TEXT}),
        Sampled(2 * SECOND, tuple(Reading(card, used_bytes=0, total_bytes=64 * GIB) for card in cards), baseline=True),
        # All cards use the same: which of them is the fullest is decided by the order of their names.
        Sampled(5 * SECOND, tuple(Reading(card, used_bytes=GIB, total_bytes=64 * GIB) for card in cards)),
        Sampled(6 * SECOND, (Reading(cards[0], missing={"used_bytes": TEXT}, throttle_reasons=(TEXT,)),)),
        SampleMissed(7 * SECOND, TEXT),
        ProcessesListed(8 * SECOND, (ProcessReading(cards[0], 77, 5),), TEXT),
        ProbeFailed(18 * SECOND, TEXT, Message("tool.words", {"words": msgspec.to_builtins(SAID)})),
        ProbeEnded(19 * SECOND, cpu_seconds=0.1, wall_seconds=18.0),
    )


def _rank_events(index: int, local: int, job: str) -> list[Event]:
    rank = 2 * index + local
    steps = [
        StepFinished((4 + n) * SECOND, n, (3 + n) * SECOND, SECOND // 2, 0, {"samples": 4}, loss=1.0 / n)
        for n in range(1, 5)
    ]
    return [
        WorkerStarted(
            3 * SECOND, EVENT_SCHEMA, clock(index), rank, local, index, 4, CARDS[rank], "uuid", "synchronize",
            {"library": TEXT}, "fp32", 4, job,
        ),
        DataDescribed(3 * SECOND, "/home/bobby/train.tsv", 5, "0" * 64),
        SpanBegan(4 * SECOND, "training", 4),
        *steps,
        SpanEnded(9 * SECOND, "training", 4 * SECOND, 4),
        RowMeasured(9 * SECOND, TEXT, {"pair": TEXT}, "s", (1.0, 2.0), problem=TEXT, facts={"file": TEXT}),
        PartsReported(9 * SECOND, 4, "acc", "machine", {HOSTS[0]: 1.0}),
        WorkerEnded(10 * SECOND, "failed" if rank else "succeeded", TEXT if rank else ""),
    ]  # fmt: skip


def _write(path: Path, *events: Event) -> None:
    with EventWriter(path) as writer:
        writer.write(*events)


def empty_fields(value: Any, found: dict[tuple[str, str], bool]) -> dict[tuple[str, str], bool]:
    """(Struct, field) -> whether some struct of that kind has something in it."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            content = getattr(value, name)
            key = (type(value).__name__, name)
            found[key] = found.get(key, False) or content not in (None, "", (), [], {})
            empty_fields(content, found)
    elif isinstance(value, tuple | list):
        for each in value:
            empty_fields(each, found)
    elif isinstance(value, dict):
        for each in value.values():
            empty_fields(each, found)
    return found
