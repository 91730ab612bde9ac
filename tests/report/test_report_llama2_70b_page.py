"""The page of llama2_70b, from its own manifest: the family of model-parallel training pages. Golden as the others."""

import os
from pathlib import Path

import pytest
from report_builders import GIB, changed, job, metric, metrics, recorded
from report_parsing import LANGUAGES, performance, tables

from flagperf.api import DataFile, Peak, precision
from flagperf.report import page
from flagperf.spec import read_manifest

ROOT = Path(__file__).parents[2]
MANIFEST = read_manifest(ROOT / "cases/flagperf_cases/llama2_70b/case.toml")
PEAK = Peak("MetaX C500", "bf16", 240e12, "MetaX C500 product brief", "high")
STAGES = [9, 9, 10, 10, 10, 11, 11, 10]


def run_of(run_id, *, set_values, tokens):
    plan = job(
        run_id=run_id, nodes=4, manifest=MANIFEST, precision=precision("amp-bf16"), peak=PEAK,
        tuning={"parallel.tp": 4, "parallel.pp": 8, "parallel.dp": 1, "parallel.stages": STAGES},
        set_values=set_values, data_files=(DataFile("llama_00_text_document.bin", 1000, "cd" * 32),),
    )  # fmt: skip
    tflops = tokens * 428_385_239_040 / 1e12
    figures = metrics(
        e2e_time=5000.0, p_whole=1.2, p_train=1.25, p_core=1.26, samples_kept=4000, steps_kept=95, steps_dropped=5,
        padding_ratio=0.0, mem_used=61.7 * GIB, mfu=tflops / 240, tflops_per_device=tflops, loss=5.9, loss_first=10.4,
        bubble_theory=0.137,
    )  # fmt: skip
    del figures["target"], figures["acc"]
    figures["token/p/s"] = metric("token/p/s", tokens)
    figures["p_core"] = changed(figures["p_core"], interval=None)
    inputs = {"formula": "exact", "parameters": 68_976_648_192, "matmul_parameters": 68_713_185_280}
    figures["mfu"] = changed(figures["mfu"], inputs=inputs)
    return recorded(run_id, plan=plan, manifest=MANIFEST, figures=figures)


def llama2_70b_runs():
    return [
        run_of("20250102T030405Z-llama2_70b-metax-4x8-aaaa", set_values={}, tokens=160.0),
        run_of("20250102T050000Z-llama2_70b-metax-4x8-bbbb", set_values={"training.accumulate": 1024}, tokens=180.5),
    ]


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
    assert list(first)[1:] == ["precision", "parallel", "fix_hp", "token/p/s", "mem", "MFU"]
    assert (first["precision"], first["parallel"], first["token/p/s"]) == ("amp-bf16", "TP4PP8DP1", "160.00")
    assert "GAS=1024" in second["fix_hp"] and "parallel.tp" not in second["fix_hp"]
    assert len(tables(text)[2]) == 1 + len(MANIFEST.references)
