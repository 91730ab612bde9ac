"""Recorded runs for the tests of reports, made of structs alone. All values are invented."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.api import DataFile, Device, Peak, Presence
from flagperf.bundle.run_record import STORE_SCHEMA, Ending, RecordedRun, Run
from flagperf.messages import Message, message
from flagperf.metrics.entry import Metric
from flagperf.spec.job import Job, PlannedNode, RunSpec
from flagperf.spec.manifest import Manifest, Page, Profile, Quality, Target
from flagperf.spec.node_facts import Environment, Fact, NodeFacts, VendorFacts
from flagperf.spec.published import PublishedResult
from flagperf.spec.values import Layer, nest, resolve
from flagperf.stats import Interval
from run_builders import minimal_job

GIB = 1 << 30

COLUMNS = ("configuration", "precision", "fix_hp", "e2e_time", "p_whole", "p_train", "p_core", "acc", "mem", "mfu")
ROWS = (
    "task", "model", "dataset", "precision", "fix_hp", "device", "mem", "e2e_time", "p_whole", "p_train", "p_core",
    "mfu", "result", "extra",
)  # fmt: skip


def published(vendor: str, device: str, total: float, **values: float) -> PublishedResult:
    source = f"training/{vendor}/distilbert-pytorch/README.md"
    return PublishedResult(vendor, device, 1, 8, "fp32", "none", source, {**values, "mem_total": total * GIB})


MANIFEST = Manifest(
    name="distilbert",
    version=1,
    kind="training",
    title={"en": "DistilBERT on SST-2", "zh": "DistilBERT（SST-2）"},
    task={"en": "Text classification", "zh": "文本分类"},
    model="distilbert-base-uncased",
    dataset="SST-2",
    precisions=("fp32", "tf32", "amp-bf16"),
    default_profile="tiny",
    page=Page(COLUMNS, ROWS),
    values={
        "training": {"batch_size": 32, "learning_rate": 5e-5, "warmup_steps": 20},
        "evaluation": {"target": 0.91},
        "model": {"sequence": 512},
    },
    profiles={
        "tiny": Profile({"en": "small", "zh": "小"}, {"model": {"sequence": 32}}),
        "standard": Profile({"en": "as published", "zh": "发布配置"}, published=True),
    },
    qualities=(Quality("acc", "share", "correct / evaluated rows", minimum=0, maximum=1),),
    target=Target("acc"),
    mfu_formula="exact",
    sequence_key="model.sequence",
    references=(
        published(
            "nvidia", "A100-SXM4-40GB", 40.0, e2e_time=361.0, p_whole=1764.0, p_train=1861.9, p_core=1942.6,
            acc=0.915, mem_used=13.9 * GIB,
        ),
        published("metax", "C500-64GB", 64.0, acc=0.908, mem_used=37.0 * GIB),
    ),
)  # fmt: skip

PEAK = Peak("MetaX C500", "fp32", 15e12, "MetaX C500 product brief", "high")

UNITS = {"e2e_time": "s", "acc": "share", "mfu": "share", "mem_used": "bytes", "mem_total": "bytes"}


def metric(name: str, value: float | None = None, **fields: Any) -> Metric:
    return Metric(name, UNITS.get(name, "samples/s"), name, "job", value, **fields)


def no_metric(name: str, reason: Any, why: Message) -> Metric:
    return metric(name, None, reason=reason, detail=str(why), message=why)


def no_peak(vendor: str, model: str, row: str) -> Message:
    return message("flops.no_peak", wanted=message("flops.wanted_peak", vendor=vendor, model=model, row=row))


def metrics(**values: float | None) -> dict[str, Metric]:
    """A full set that keeps every rule; `values` replace some of it, with `_` for what a name may not have."""
    found = {
        "e2e_time": 420.25, "p_whole": 1621.04, "p_train": 1702.96, "p_core": 1755.55, "steps_kept": 2620,
        "steps_dropped": 20, "samples_kept": 670_000, "padding_ratio": 0.974, "step_time_p50": 0.1461,
        "step_time_p90": 0.1502, "step_time_p99": 0.1644, "loss": 0.1234, "loss_first": 0.6931, "acc": 0.9128,
        "mem_used": 37.04 * GIB, "mem_total": 64.0 * GIB, "mfu": 0.2345, "tflops_per_device": 3.5175, **values,
    }  # fmt: skip
    made = {name: metric(name, value) for name, value in found.items()}
    made["token/p/s"] = metric("token/p/s", 2917.3)
    made["target"] = metric("target", 1, inputs={"metric": "acc", "target": 0.91, "got": found["acc"]})
    made["p_core"] = changed(made["p_core"], interval=Interval(1750.1, 1761.0, "batch_means_95"))
    inputs = {
        "mem_used": sampled("0000:05:00.0", 212.5, "mx-smi", 1.0, 418, 1.42),
        "acc": {"evaluated": 872},
        "mfu": {"formula": "exact", "parameters": 66_955_010, "matmul_parameters": 43_057_920},
        "p_core": {"timing": "device_events"},
    }
    return {**made, **{name: changed(made[name], inputs=given) for name, given in inputs.items()}}


def sampled(card: str, peak: float, probe: str, interval: float, count: int, gap: float) -> dict[str, Any]:
    """Return the inputs of mem_used."""
    seconds = {"peak_seconds": peak, "interval_seconds": interval, "largest_gap_seconds": gap}
    return {"device_id": card, "probe": probe, "num_samples": count, **seconds}


def changed(struct: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(struct, **fields)


def device(slot: int) -> Device:
    return Device(f"0000:{slot:02x}:00.0", "MetaX C500", "C500", slot, 64 * GIB)


def cpu_slot(slot: int) -> Device:
    return Device(f"cpu:{slot}", "Example CPU 9000", "CPU", slot, 16 * GIB)


def job(
    *,
    nodes: int = 1,
    devices: int = 8,
    file_values: dict[str, Any] | None = None,
    set_values: dict[str, Any] | None = None,
    tuning: dict[str, Any] | None = None,
    profile: str = "standard",
    manifest: Manifest = MANIFEST,
    run_id: str = "",
    **fields: Any,
) -> Job:
    layers = [
        Layer(f"profile {profile}", manifest.profiles[profile].values),
        Layer("tuning metax", nest(tuning or {}), "vendor"),
        Layer("file flagperf.toml", nest(file_values or {}), "user"),
        Layer("--set", nest(set_values or {}), "user"),
    ]
    parts = tuple(
        PlannedNode(index, f"node{index}", f"node{index}", tuple(map(device, range(devices))), 64)
        for index in range(nodes)
    )
    plan = minimal_job(
        run_id=run_id, case=manifest.name, case_version=manifest.version, kind=manifest.kind, profile=profile,
        vendor="metax", vendor_title={"en": "MetaX", "zh": "沐曦"}, adapter="flagperf-metax 0.1.0",
        config=resolve(manifest, layers), nodes=parts, master_address="node0", host_workers=devices,
        memory_scope="device", has_allocator=True, peaks=(PEAK,), data_dir="/data",
        data_files=(DataFile("dataset/train_dataset.npz", 1000, "ab" * 32),),
    )  # fmt: skip
    return changed(plan, **fields)


FACTS = {
    "machine": Fact("Example R5300 G5"),
    "cpu": Fact("Example CPU 9000"),
    "network": Fact("InfiniBand, 2x200 Gb/s", "stated"),
    "os": Fact("Ubuntu 22.04.4 LTS"),
    "kernel": Fact("5.15.0-91-generic"),
    "container": Fact("docker"),
    "docker": Fact(None, "absent", "the docker command is not installed"),
    "framework": Fact("torch 2.4.0+metax2.27"),
    "python": Fact("3.10.14"),
    "commit": Fact("0123abc"),
}


def node(vendor: str = "metax", host: str = "node0", **facts: Fact) -> NodeFacts:
    versions = {"driver": "2.9.8", "maca": "2.27.0"} if vendor != "cpu" else {}
    served = VendorFacts(vendor, f"flagperf-{vendor} 0.1.0", Presence("present", ("seen",)), versions=versions)
    packages = {"torch": "2.4.0+metax2.27", "transformers": "4.44.0"}
    return NodeFacts(host, Environment({**FACTS, **facts}, packages, {}), (served,), 64)


def recorded(
    run_id: str = "20250102T030405Z-distilbert-metax-1x8-aaaa",
    *,
    ending: Ending | None = Ending("succeeded"),  # noqa: B008
    figures: dict[str, Metric] | None = None,
    nodes: tuple[NodeFacts, ...] | None = None,
    plan: Job | None = None,
    manifest: Manifest = MANIFEST,
    created: str = "2025-01-02T03:04:05Z",
    simulated: bool = False,
    **job_fields: Any,
) -> RecordedRun:
    plan = plan or job(run_id=run_id, manifest=manifest, **job_fields)
    found = metrics() if figures is None else figures
    run = Run(
        STORE_SCHEMA, run_id, created, "0.1.0", RunSpec("distilbert"), plan, manifest, ending,
        metrics=tuple(found.values()), simulated=simulated,
    )  # fmt: skip
    return RecordedRun(run, nodes or tuple(node(host=part.host) for part in plan.nodes), f"runs/{run_id}")


def metax_runs() -> list[RecordedRun]:
    """1x8 standard, 1x8 with overrides and a missed target, 2x8 that failed; not in the order of the page."""
    overridden = recorded(
        "20250102T040000Z-distilbert-metax-1x8-bbbb",
        figures=_overridden_figures(),
        set_values={"training.learning_rate": 1.5e-4},
        tuning={"training.batch_size": 96},
    )
    return [_failed(), overridden, recorded()]


def _failed() -> RecordedRun:
    run_id = "20250102T050000Z-distilbert-metax-2x8-cccc"
    plan = job(run_id=run_id, nodes=2)
    ending = Ending("out_of_memory", "rank 3 of node0: out of memory | tried to allocate 2.0 GiB")
    observed = metrics(mem_used=63.9 * GIB)
    figures = {name: observed[name] for name in ("mem_used", "mem_total")} | {"p_core": metric("p_core", 1700.0)}
    return recorded(run_id, ending=ending, figures=figures, plan=plan)


def _overridden_figures() -> dict[str, Metric]:
    found = metrics(e2e_time=398.0, p_whole=1799.96, p_train=1850.0, p_core=1901.25, acc=0.9083, mem_used=55.5 * GIB)
    found["target"] = metric("target", 0, inputs={"metric": "acc", "target": 0.91, "got": 0.9083})
    found["mfu"] = no_metric("mfu", "unknown_peak", no_peak("metax", "MetaX C500", "fp32"))
    return found


def cpu_run() -> RecordedRun:
    """The tiny profile on two slots that share one core."""
    run_id = "20250103T030405Z-distilbert-cpu-1x2-dddd"
    part = PlannedNode(0, "localhost", "laptop", (cpu_slot(0), cpu_slot(1)), 1)
    plan = job(
        run_id=run_id, profile="tiny", vendor="cpu", vendor_title={"en": "CPU", "zh": "CPU"}, adapter="flagperf 0.1.0",
        memory_scope="host", has_allocator=False, peaks=(), oversubscribed=True, data_dir=None, data_files=(),
    )  # fmt: skip
    figures = metrics(e2e_time=21.4, p_whole=12.31, p_train=12.9, p_core=13.05, samples_kept=96, mem_used=0.61 * GIB)
    for name in ("p_whole", "p_train", "p_core"):
        figures[name] = changed(figures[name], marks=("oversubscribed",), interval=None)
    figures["mem_total"] = metric("mem_total", 16 * GIB)
    figures["cpu_others"] = metric("cpu_others", 0.034, inputs={"cores": 1})
    figures["mem_used"] = changed(figures["mem_used"], inputs=sampled("cpu:0", -1.25, "pss", 0.5, 41, 0.5))
    figures["mfu"] = no_metric("mfu", "unknown_peak", no_peak("cpu", "Example CPU 9000", "fp32"))
    plan = changed(plan, nodes=(part,))
    absent = Fact(None, "absent", "one node: nothing to connect")
    facts = node("cpu", "laptop", network=absent, framework=Fact("torch 2.4.0+cpu"))
    return recorded(run_id, plan=plan, figures=figures, nodes=(facts,), created="2025-01-03T03:04:05Z")
