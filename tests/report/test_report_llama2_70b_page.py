"""The page of llama2_70b, from its own manifest: the family of model-parallel training pages. Golden as the others."""

import json
import os
from pathlib import Path

import pytest
from report_builders import GIB, changed, device, job, metric, metrics, recorded
from report_parsing import LANGUAGES, footnotes, performance, tables, unpadded, value

from flagperf.api import DataFile, Peak, precision
from flagperf.metrics.alignment import RULES, CurvePoint, LossCurve, loss_aligned
from flagperf.plugins.installed import load_plugins
from flagperf.report.run_json import to_json
from flagperf.report.screens import run_report
from flagperf.report.terminal import to_terminal
from flagperf.stats import Interval
from flagperf_publish.pages.layouts import page

ROOT = Path(__file__).parents[2]
MANIFEST = load_plugins().case("llama2_70b").manifest
PEAK = Peak("MetaX C500", "bf16", 240e12, "MetaX C500 product brief", "high")
STAGES = [9, 9, 10, 10, 10, 11, 11, 10]


def curve_of(run_id, factor, samples, tp=4):
    """100 steps; the first 20 are far off, which the rule does not judge."""
    losses = [(10 - 0.05 * step) * (factor if step > 20 else 1.5) for step in range(1, 101)]
    points = tuple(CurvePoint(step, loss, samples) for step, loss in enumerate(losses, start=1))
    return LossCurve(
        "llama2_70b",
        points,
        case_version=1,
        run=run_id,
        vendor="nvidia",
        device="H800-80GB",
        shape="4x8",
        values={"training.seed": 1234, "parallel.tp": tp},
    )


REFERENCE = curve_of("20250101T000000Z-llama2_70b-nvidia-4x8-ffff", 1.0, 1024, tp=8)


def judged(run, factor, samples):
    verdict = loss_aligned(curve_of(run.run.id, factor, samples), REFERENCE, RULES["flagperf-2pct"], REFERENCE.run)
    return changed(run, run=changed(run.run, metrics=(*run.run.metrics, verdict)))


def run_of(run_id, *, set_values, tokens):
    plan = job(
        run_id=run_id,
        nodes=4,
        manifest=MANIFEST,
        precision=precision("amp-bf16"),
        peaks=(PEAK,),
        tuning={"parallel.tp": 4, "parallel.pp": 8, "parallel.dp": 1, "parallel.stages": STAGES},
        set_values=set_values,
        data_files=(DataFile("llama_00_text_document.bin", 1000, "cd" * 32),),
    )
    tflops = tokens * 428_385_239_040 / 1e12
    figures = metrics(
        e2e_time=5000.0,
        p_whole=1.2,
        p_train=1.25,
        p_core=1.26,
        samples_kept=4000,
        steps_kept=95,
        steps_dropped=5,
        padding_ratio=0.0,
        mem_used=61.7 * GIB,
        mfu=tflops / 240,
        tflops_per_device=tflops,
        loss=5.9,
        loss_first=10.4,
        bubble_theory=7 / (set_values.get("training.accumulate", 44) + 7),
    )
    del figures["target"], figures["acc"]
    figures["token/p/s"] = metric("token/p/s", tokens)
    figures["token/p/s"] = changed(figures["token/p/s"], interval=Interval(tokens - 1, tokens + 1, "batch_means_95"))
    inputs = {"formula": "exact", "parameters": 68_976_648_192, "matmul_parameters": 68_713_185_280}
    figures["mfu"] = changed(figures["mfu"], inputs=inputs)
    for formula, flops in (("nominal-6n", 420_000_000_000), ("palm", 446_072_143_872)):
        share = tokens * flops / 240e12
        figures[f"mfu_{formula}"] = metric(f"mfu_{formula}", share, inputs={"formula": formula})
    per_device = {f"{node}/{device(card).id}": (61.7 - node) * GIB for node in range(4) for card in range(8)}
    figures["mem_used"] = changed(figures["mem_used"], inputs={**figures["mem_used"].inputs, "per_device": per_device})
    reserved = {name: used - 2 * GIB for name, used in per_device.items()}
    figures["mem_allocator"] = metric(
        "mem_allocator", 59.7 * GIB, inputs={"device_id": "0000:05:00.0", "per_device": reserved}
    )
    figures["mem_remainder"] = metric("mem_remainder", 2 * GIB)
    return recorded(run_id, plan=plan, manifest=MANIFEST, figures=figures)


def published_run():
    return run_of("20250102T030405Z-llama2_70b-metax-4x8-aaaa", set_values={}, tokens=160.0)


def large_batch_run():
    """What published pages align: the global batch of the original paper."""
    return run_of("20250102T050000Z-llama2_70b-metax-4x8-bbbb", set_values={"training.accumulate": 1024}, tokens=180.5)


def llama2_70b_runs():
    """Of which one can be aligned with the reference."""
    return [judged(published_run(), 1.0, 44), judged(large_batch_run(), 1.01, 1024)]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_equals_the_golden_one(lang):
    path = ROOT / f"tests/golden/llama2_70b-{lang}.md"
    text = page(llama2_70b_runs(), lang)
    if os.environ.get("FLAGPERF_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_has_the_columns_of_its_family_and_all_published_rows(lang):
    text = page(llama2_70b_runs(), lang)
    first, second = performance(text)
    aligned = {"en": "Loss aligned", "zh": "是否精度对齐"}[lang]
    shown = ["precision", "parallel", "fix_hp", "token/p/s", aligned, "mem", "MFU", "bubble_theory"]
    assert list(first)[1:] == shown
    assert (first["precision"], first["parallel"], first["token/p/s"]) == ("amp-bf16", "TP4PP8DP1", "160.00")
    assert "GAS=1024" in second["fix_hp"] and "parallel.tp" not in second["fix_hp"]
    published = [reference for reference in MANIFEST.references if reference.values]
    assert len(tables(text)[2]) == 1 + 2 + len(published)


def aligned_cell(run):
    """Its text and the note that it points to."""
    text = page([run], "en")
    word, numbers = value(performance(text)[0]["Loss aligned"])
    return word, footnotes(text)[numbers[0]] if numbers else ""


def test_without_a_reference_the_cell_says_so_and_is_neither_blank_nor_false():
    assert aligned_cell(large_batch_run()) == (
        "/",
        "not_applicable (does not apply here): no reference curve was given",
    )
    assert "没有给出参考曲线" in page([large_batch_run()], "zh")
    (exported,) = json.loads(to_json([large_batch_run()]))["runs"]
    assert exported["metrics"]["loss_aligned"]["value"] is None
    assert exported["metrics"]["loss_aligned"]["detail"] == "no reference curve was given"


@pytest.mark.parametrize(("factor", "word"), [(1.01, "True"), (1.03, "False")])
def test_a_verdict_stands_in_its_cell_with_rule_error_and_reference_in_the_notes(factor, word):
    run = judged(large_batch_run(), factor, 1024)
    assert aligned_cell(run) == (word, "")
    percent = f"{(factor - 1) * 100:.0f}%"
    for lang, words in (
        (
            "en",
            (
                f"loss aligned {word} by rule flagperf-2pct (mean relative error below 2% from step 21 on), reference "
                f"{REFERENCE.run} (nvidia H800-80GB 4x8); mean relative error {percent}, largest {percent} at step",
                "80 of the 80 steps from 21 to 100 compared",
                "(run/reference): parallel.tp 4/8",
                "not compared, because not recorded on both sides: model, data",
            ),
        ),
        (
            "zh",
            (
                f"精度对齐{word}，规则flagperf-2pct（自第21步起平均相对误差小于2%），参考{REFERENCE.run}",
                f"平均相对误差{percent}",
                "因一方未说明而未比较：模型、数据",
            ),
        ),
    ):
        for part in words:
            assert part in page([run], lang)
    assert f"loss aligned {word} by rule" in to_terminal(run_report([run]), width=200)
    (exported,) = json.loads(to_json([run]))["runs"]
    verdict = exported["metrics"]["loss_aligned"]
    assert (verdict["value"], verdict["inputs"]["reference_name"]) == (int(word == "True"), REFERENCE.run)
    assert verdict["inputs"]["mean_error"] == pytest.approx(factor - 1)


def test_a_run_of_another_experiment_says_which_and_is_not_false():
    word, note = aligned_cell(judged(published_run(), 1.0, 44))
    assert word == "/"
    assert note.endswith(
        "the reference is from a different experiment: step 1 has 44 samples in RUN, 1024 in REFERENCE"
    )
    assert "参考属于另一实验：第1步在运行中有44个样本，在参考中有1024个" in page(llama2_70b_runs(), "zh")


def test_a_published_verdict_is_shown_as_it_was_published():
    head, *rows = tables(page(llama2_70b_runs(), "zh"))[2]
    aligned = [dict(zip(head, row, strict=True)) for row in rows if not row[0].startswith("**")]
    assert [row["fix_hp"] for row in aligned if row["是否精度对齐"] == "True"] == ["GAS=1024, GBS=1024"] * 2
    assert not [row for row in aligned if row["是否精度对齐"] == "False"]


def test_the_bubble_is_called_theoretical_and_not_measured_in_both_languages():
    english, chinese = (unpadded(page(llama2_70b_runs(), lang)) for lang in ("en", "zh"))
    assert "| Pipeline bubble (theoretical) | bubble_theory, see “Performance” |" in english
    assert "computed from the layout, not measured" in english
    assert "| 流水线气泡（理论值） | bubble_theory,见“性能指标” |" in chinese
    assert "并非测量值" in chinese


def test_mfu_has_the_other_formulas_beside_it():
    """908.29 tokens of 420e9 FLOPs by nominal-6n would be 38.6 % of 989 TFLOP/s; here 180.5 of 240."""
    text = page([large_batch_run()], "en")
    assert "MFU by formula exact, N=68,976,648,192" in text
    assert "published figures of the same formula only: nominal-6n 31.6%, palm 33.5%" in text


def test_memory_is_given_of_all_devices_by_probe_and_by_allocator():
    text = page([large_batch_run()], "en")
    assert "peaks of the 32 devices by the probe: lowest 58.7, mean 60.2, highest 61.7 GiB" in text
    assert "peaks of the 32 devices by the allocator: lowest 56.7, mean 58.2, highest 59.7 GiB" in text


def test_intervals_are_those_of_the_columns():
    text = page([large_batch_run()], "en")
    assert "token/p/s: 179.50 to 181.50 (95 %, batch means)" in text
    assert "p_core: " not in text


def test_two_layouts_are_no_repeats_of_each_other():
    other = run_of(
        "20250102T060000Z-llama2_70b-metax-4x8-cccc", set_values={"parallel.tp": 8, "parallel.pp": 4}, tokens=1
    )
    text = page([published_run(), other], "en")
    assert text.count("repeat 1 of 1") == 2
