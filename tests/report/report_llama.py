"""Recorded runs of llama2_7b_finetune with its real manifest. All values are invented."""

from __future__ import annotations

from report_builders import GIB, changed, job, metric, metrics, recorded

from flagperf.api import DataFile, Peak, precision
from flagperf.bundle.run_record import RecordedRun
from flagperf.metrics.entry import Metric
from flagperf.plugins.installed import load_plugins
from flagperf.spec.manifest import Manifest

CATEGORIES = {"STEM": 0.3541, "humanities": 0.4219, "social sciences": 0.5102, "other": 0.5233}
FILES = (
    DataFile("llama2_7b_hf/tokenizer.model", 499_723, "aa" * 32),
    DataFile("samsum_dataset/train.json", 9_479_141, "bb" * 32),
)


def llama_manifest() -> Manifest:
    return load_plugins().case("llama2_7b_finetune").manifest


def llama_runs() -> list[RecordedRun]:
    """One card as published, in fp16; eight cards in bf16, which miss the target."""
    return [_run("1x1", 1, "fp16", {"training.batch_size": 4}, llama_metrics()), _run("1x8", 8, "bf16", {}, _missed())]


def _run(shape: str, devices: int, name: str, changes: dict[str, int], figures: dict[str, Metric]) -> RecordedRun:
    run_id = f"20250104T030405Z-llama2_7b_finetune-metax-{shape}-eeee"
    plan = job(
        run_id=run_id,
        devices=devices,
        set_values=changes,
        manifest=llama_manifest(),
        data_files=FILES,
        precision=precision(name),
        peaks=(Peak("MetaX C500", name, 280e12, "MetaX C500 product brief", "medium"),),
    )
    return recorded(run_id, plan=plan, manifest=llama_manifest(), figures=figures, created="2025-01-04T03:04:05Z")


def llama_metrics(**values: float) -> dict[str, Metric]:
    found = {
        "e2e_time": 4120.5,
        "p_whole": 7.2,
        "p_train": 7.53,
        "p_core": 7.61,
        "steps_kept": 4600,
        "steps_dropped": 10,
        "samples_kept": 18_400,
        "padding_ratio": 0.0,
        "token/p/s": 3855.4,
        "loss": 1.7219,
        "acc(MMLU)": 0.4487,
        "mmlu_original": 0.4071,
        "mmlu_macro": 0.4512,
        "mmlu_shots": 5.0,
        "mmlu_cut": 0,
        "val_loss": 1.6101,
        "test_loss": 1.6202,
        "mem_used": 31.2 * GIB,
        "mem_total": 64.0 * GIB,
        "mfu": 0.36979,
        "mfu_nominal-2n": 0.1928,
        "tflops_per_device": 103.541,
        **values,
    }
    made = {name: metric(name, value) for name, value in found.items()}
    for name in ("mem_used", "p_core"):
        made[name] = changed(made[name], inputs=metrics()[name].inputs)
    made["target"] = metric(
        "target",
        int(found["acc(MMLU)"] >= 0.4),
        inputs={"metric": "acc(MMLU)", "target": 0.4, "got": found["acc(MMLU)"]},
    )
    parts = {"category": CATEGORIES, "subject": {f"subject_{number}": 0.45 for number in range(57)}}
    made["acc(MMLU)"] = changed(made["acc(MMLU)"], inputs={"step": 4610, "evaluated": 14042, "parts": parts})
    made["mfu"] = changed(
        made["mfu"],
        marks=("medium_peak",),
        inputs={"formula": "exact-lora", "parameters": 6_738_415_616, "matmul_parameters": 6_607_077_376},
    )
    return made


def _missed() -> dict[str, Metric]:
    found = {"token/p/s": 3902.0, "p_whole": 58.1, "p_train": 60.9, "p_core": 61.2, "acc(MMLU)": 0.3812}
    return llama_metrics(**found, e2e_time=900.0, mfu=0.37427, tflops_per_device=104.7956)
