"""The runs of the golden pages of cases, each with the real manifest of its case. All values are invented."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from report_builders import GIB, changed, device, job, metric, metrics, no_metric, recorded

from flagperf.api import DataFile, Peak, precision
from flagperf.bundle.run_record import Ending, RecordedRun
from flagperf.messages import message
from flagperf.metrics.alignment import RULES, CurvePoint, LossCurve, loss_aligned
from flagperf.metrics.entry import Metric
from flagperf.plugins.installed import load_plugins
from flagperf.stats import Interval

RAN = Ending("succeeded")


def case_run(
    run_id: str, row: str, figures: dict[str, Metric], *, peak: float, files: Iterable[DataFile] = (),
    ending: Ending = RAN, confidence: Any = "high", created: str = "2025-01-02T03:04:05Z", **plan: Any,
) -> RecordedRun:  # fmt: skip
    """Make a run of the case that the id names, on MetaX C500."""
    manifest = load_plugins().case(run_id.split("-")[1]).manifest
    peaks = (Peak("MetaX C500", row.removeprefix("amp-"), peak, "MetaX C500 product brief", confidence),)
    planned = job(
        run_id=run_id, manifest=manifest, precision=precision(row), peaks=peaks, data_files=tuple(files), **plan
    )
    return recorded(run_id, plan=planned, manifest=manifest, figures=figures, ending=ending, created=created)


def with_inputs(figures: dict[str, Metric], **inputs: dict[str, Any]) -> dict[str, Metric]:
    return {**figures, **{name: changed(figures[name], inputs=given) for name, given in inputs.items()}}


# --- llama2_7b_finetune: fine-tuning --------------------------------------------------------------------------------


def llama_runs() -> list[RecordedRun]:
    """One card as published, in fp16; eight cards in bf16, which miss the target."""
    missed = {"token/p/s": 3902.0, "p_whole": 58.1, "p_train": 60.9, "p_core": 61.2, "acc(MMLU)": 0.3812}
    missed |= {"e2e_time": 900.0, "mfu": 0.37427, "tflops_per_device": 104.7956}
    files = (
        DataFile("llama2_7b_hf/tokenizer.model", 499_723, "aa" * 32),
        DataFile("samsum_dataset/train.json", 9_479_141, "bb" * 32),
    )
    return [
        case_run(
            f"20250104T030405Z-llama2_7b_finetune-metax-1x{devices}-eeee", row, llama_metrics(**figures), peak=280e12,
            confidence="medium", devices=devices, set_values=values, files=files, created="2025-01-04T03:04:05Z",
        )
        for devices, row, values, figures in ((1, "fp16", {"training.batch_size": 4}, {}), (8, "bf16", {}, missed))
    ]  # fmt: skip


def llama_metrics(**values: float) -> dict[str, Metric]:
    found = {
        "e2e_time": 4120.5, "p_whole": 7.2, "p_train": 7.53, "p_core": 7.61, "steps_kept": 4600, "steps_dropped": 10,
        "samples_kept": 18_400, "padding_ratio": 0.0, "token/p/s": 3855.4, "loss": 1.7219, "acc(MMLU)": 0.4487,
        "mmlu_original": 0.4071, "mmlu_macro": 0.4512, "mmlu_shots": 5.0, "mmlu_cut": 0, "val_loss": 1.6101,
        "test_loss": 1.6202, "mem_used": 31.2 * GIB, "mem_total": 64.0 * GIB, "mfu": 0.36979,
        "mfu_nominal-2n": 0.1928, "tflops_per_device": 103.541, **values,
    }  # fmt: skip
    made = {name: metric(name, value) for name, value in found.items()}
    got, plain = found["acc(MMLU)"], metrics()
    made["target"] = metric("target", int(got >= 0.4), inputs={"metric": "acc(MMLU)", "target": 0.4, "got": got})
    made["mfu"] = changed(made["mfu"], marks=("medium_peak",))
    categories = {"STEM": 0.3541, "humanities": 0.4219, "social sciences": 0.5102, "other": 0.5233}
    parts = {"category": categories, "subject": {f"subject_{number}": 0.45 for number in range(57)}}
    sizes = {"formula": "exact-lora", "parameters": 6_738_415_616, "matmul_parameters": 6_607_077_376}
    evaluated = {"step": 4610, "evaluated": 14042, "parts": parts}
    inputs = {"mem_used": plain["mem_used"].inputs, "p_core": plain["p_core"].inputs}
    return with_inputs(made, **{**inputs, "acc(MMLU)": evaluated, "mfu": sizes})


# --- glm: training with MFU -----------------------------------------------------------------------------------------


def glm_runs() -> list[RecordedRun]:
    figures = metrics(
        e2e_time=2500.0, p_whole=40.04, p_train=46.0, p_core=46.5, samples_kept=96_000, steps_kept=730,
        padding_ratio=0.41, acc=0.8021, em=0.8054, f1=0.8131, mem_used=55.1 * GIB, mfu=64.0105 / 240,
        tflops_per_device=64.0105, loss=0.41, loss_first=2.3,
    )  # fmt: skip
    figures["target"] = metric("target", 1, inputs={"metric": "acc", "target": 0.8, "got": 0.8021})
    figures["p_core"] = changed(figures["p_core"], interval=None)
    sizes = {"formula": "exact", "parameters": 334_688_256, "matmul_parameters": 333_316_096}
    figures = with_inputs(figures, acc={"evaluated": 10_000}, mfu=sizes)
    # 59 % of the positions are real, as padding_ratio says
    figures["mfu_useful"] = metric("mfu_useful", 0.59 * 64.0105 / 240, inputs=sizes)
    figures["mfu_nominal-6n"] = metric("mfu_nominal-6n", 0.2489, inputs={"formula": "nominal-6n"})
    files = (DataFile("ReCoRD/train.jsonl", 1000, "cd" * 32), DataFile("ReCoRD/val.jsonl", 100, "ef" * 32))
    batches = {"training.batch_size": 16, "evaluation.batch_size": 16}
    failed = Ending("failed", "rank 3 of node0: the link went down")
    return [
        case_run(
            f"20250102T{run}", "fp16", measured, peak=240e12, files=files, ending=ending, nodes=nodes,
            tuning={"precision": "fp16", **tuning},
        )
        for run, nodes, measured, ending, tuning in (
            ("050000Z-glm-metax-2x8-cccc", 2, {}, failed, {"training.learning_rate": 2e-5}),
            ("030405Z-glm-metax-1x8-aaaa", 1, figures, RAN, batches),
        )
    ]  # fmt: skip


# --- aquila_33b: inference ------------------------------------------------------------------------------------------


def aquila_run(**speeds: float) -> RecordedRun:
    tflops = 2400.0 / 8 * 66_217_000_000 / 1e12
    figures = metrics(
        e2e_time=600.0, samples_kept=5148, steps_kept=5148, steps_dropped=5, padding_ratio=0.05, mem_used=12.3 * GIB,
        mfu=tflops / 240, tflops_per_device=tflops, loss=3.0075, loss_per_token=2.98, perplexity=20.24,
    )  # fmt: skip
    for name in ("target", "p_whole", "p_train", "p_core", "loss_first"):
        del figures[name]
    speeds = {"p_infer_whole": 2100.0, "p_infer_core": 2280.0, "p_infer_padded": 2400.0, **speeds}
    figures |= {name: metric(name, value) for name, value in {"acc": 0.651, **speeds}.items()}
    for name in ("p_val_whole", "p_val_core"):
        figures[name] = no_metric(name, "not_applicable", message("inference.engine_alone"))
    sizes = {"formula": "exact-infer", "parameters": 33_693_554_688, "matmul_parameters": 33_078_362_112}
    engine = {"engine": "flagperf decoder (torch 2.6.0)", "timing": "device_events"}
    figures = with_inputs(figures, p_infer_core=engine, mfu=sizes)
    figures["mfu_nominal-2n"] = metric("mfu_nominal-2n", 0.085, inputs={"formula": "nominal-2n"})
    figures["mfu_palm"] = metric("mfu_palm", 0.091, inputs={"formula": "palm-infer"})
    weights = [f"ckpts/iter_0135000/mp_rank_0{rank}/model_optim_rng.pt" for rank in (0, 1)]
    paths = ("ckpts/latest_checkpointed_iteration.txt", *weights, "data/lambada_test.jsonl")
    return case_run(
        "20250102T030405Z-aquila_33b-metax-1x8-aaaa", "bf16", figures, peak=240e12,
        tuning={"parallel.tp": 8, "parallel.pp": 1, "parallel.dp": 1},
        files=(DataFile(path, 1000, "4a" * 32) for path in paths),
    )  # fmt: skip


# --- llama2_70b: training in parallel, with a loss that is aligned --------------------------------------------------


def curve_of(run_id: str, factor: float, samples: int, tp: int = 4) -> LossCurve:
    """100 steps; the first 20 are far off, which the rule does not judge."""
    losses = [(10 - 0.05 * step) * (factor if step > 20 else 1.5) for step in range(1, 101)]
    points = tuple(CurvePoint(step, loss, samples) for step, loss in enumerate(losses, start=1))
    return LossCurve(
        "llama2_70b", points, case_version=1, run=run_id, vendor="nvidia", device="H800-80GB", shape="4x8",
        values={"training.seed": 1234, "parallel.tp": tp},
    )  # fmt: skip


REFERENCE = curve_of("20250101T000000Z-llama2_70b-nvidia-4x8-ffff", 1.0, 1024, tp=8)


def judged(run: RecordedRun, factor: float, samples: int) -> RecordedRun:
    verdict = loss_aligned(curve_of(run.run.id, factor, samples), REFERENCE, RULES["flagperf-2pct"], REFERENCE.run)
    return changed(run, run=changed(run.run, metrics=(*run.run.metrics, verdict)))  # type: ignore[no-any-return]


def llama2_70b_run(run_id: str, tokens: float, **values: int) -> RecordedRun:
    """`values` are of table training."""
    tflops = tokens * 428_385_239_040 / 1e12
    figures = metrics(
        e2e_time=5000.0, p_whole=1.2, p_train=1.25, p_core=1.26, samples_kept=4000, steps_kept=95, steps_dropped=5,
        padding_ratio=0.0, mem_used=61.7 * GIB, mfu=tflops / 240, tflops_per_device=tflops, loss=5.9,
        loss_first=10.4, bubble_theory=7 / (values.get("accumulate", 44) + 7),
    )  # fmt: skip
    del figures["target"], figures["acc"]
    around = Interval(tokens - 1, tokens + 1, "batch_means_95")
    figures["token/p/s"] = metric("token/p/s", tokens, interval=around)
    for formula, flops in (("nominal-6n", 420_000_000_000), ("palm", 446_072_143_872)):
        share = tokens * flops / 240e12
        figures[f"mfu_{formula}"] = metric(f"mfu_{formula}", share, inputs={"formula": formula})
    used = {f"{node}/{device(card).id}": (61.7 - node) * GIB for node in range(4) for card in range(8)}
    reserved = {"device_id": "0000:05:00.0", "per_device": {name: each - 2 * GIB for name, each in used.items()}}
    figures["mem_allocator"] = metric("mem_allocator", 59.7 * GIB, inputs=reserved)
    figures["mem_remainder"] = metric("mem_remainder", 2 * GIB)
    sizes = {"formula": "exact", "parameters": 68_976_648_192, "matmul_parameters": 68_713_185_280}
    figures = with_inputs(figures, mfu=sizes, mem_used={**figures["mem_used"].inputs, "per_device": used})
    stages = [9, 9, 10, 10, 10, 11, 11, 10]
    return case_run(
        run_id, "amp-bf16", figures, peak=240e12, nodes=4,
        tuning={"parallel.tp": 4, "parallel.pp": 8, "parallel.dp": 1, "parallel.stages": stages},
        set_values={f"training.{name}": value for name, value in values.items()},
        files=[DataFile("llama_00_text_document.bin", 1000, "cd" * 32)],
    )  # fmt: skip


def large_batch_run() -> RecordedRun:
    """What published pages align: the global batch of the original paper."""
    return llama2_70b_run("20250102T050000Z-llama2_70b-metax-4x8-bbbb", 180.5, accumulate=1024)


def llama2_70b_runs() -> list[RecordedRun]:
    """Only the second has the experiment of the reference."""
    small_batch = llama2_70b_run("20250102T030405Z-llama2_70b-metax-4x8-aaaa", 160.0)
    return [judged(small_batch, 1.0, 44), judged(large_batch_run(), 1.01, 1024)]
