"""The page of the case glm, from its own manifest: the family of training pages with MFU. Golden as the others are."""

import os
import re
from pathlib import Path

import pytest
from report_builders import GIB, changed, job, metric, metrics, recorded
from report_parsing import LANGUAGES, performance, tables

from flagperf.api import DataFile, Peak, precision
from flagperf.bundle.run_record import Ending
from flagperf.plugins.installed import load_plugins
from flagperf_publish.pages.layouts import page

ROOT = Path(__file__).parents[2]
MANIFEST = load_plugins().case("glm").manifest
PEAK = Peak("MetaX C500", "fp16", 240e12, "MetaX C500 product brief", "high")


def run_of(run_id, *, nodes, tuning, ending=Ending("succeeded"), figures=None):  # noqa: B008
    plan = job(
        run_id=run_id,
        nodes=nodes,
        manifest=MANIFEST,
        tuning={"precision": "fp16", **tuning},
        precision=precision("fp16"),
        peaks=(PEAK,),
        data_files=(DataFile("ReCoRD/train.jsonl", 1000, "cd" * 32), DataFile("ReCoRD/val.jsonl", 100, "ef" * 32)),
    )
    return recorded(run_id, plan=plan, manifest=MANIFEST, ending=ending, figures=figures)


def glm_runs():
    figures = metrics(
        e2e_time=2500.0,
        p_whole=40.04,
        p_train=46.0,
        p_core=46.5,
        samples_kept=96_000,
        steps_kept=730,
        padding_ratio=0.41,
        acc=0.8021,
        em=0.8054,
        f1=0.8131,
        mem_used=55.1 * GIB,
        mfu=64.0105 / 240,
        tflops_per_device=64.0105,
        loss=0.41,
        loss_first=2.3,
    )
    figures["target"] = metric("target", 1, inputs={"metric": "acc", "target": 0.8, "got": 0.8021})
    figures["acc"] = changed(figures["acc"], inputs={"evaluated": 10_000})
    figures["p_core"] = changed(figures["p_core"], interval=None)
    inputs = {"formula": "exact", "parameters": 334_688_256, "matmul_parameters": 333_316_096}
    figures["mfu"] = changed(figures["mfu"], inputs=inputs)
    # 59 % of the positions are real, as padding_ratio says
    figures["mfu_useful"] = metric("mfu_useful", 0.59 * 64.0105 / 240, inputs=inputs)
    figures["mfu_nominal-6n"] = metric("mfu_nominal-6n", 0.2489, inputs={"formula": "nominal-6n"})
    done = run_of(
        "20250102T030405Z-glm-metax-1x8-aaaa",
        nodes=1,
        figures=figures,
        tuning={"training.batch_size": 16, "evaluation.batch_size": 16},
    )
    failed = run_of(
        "20250102T050000Z-glm-metax-2x8-cccc",
        nodes=2,
        tuning={"training.learning_rate": 2e-5},
        figures={},
        ending=Ending("failed", "rank 3 of node0: the link went down"),
    )
    return [failed, done]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_equals_the_golden_one(lang):
    path = ROOT / f"tests/golden/glm-{lang}.md"
    text = page(glm_runs(), lang)
    if os.environ.get("FLAGPERF_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_has_the_columns_of_its_family_and_all_published_rows(lang):
    text = page(glm_runs(), lang)
    row = performance(text)[0]
    assert list(row)[1:] == [
        "precision",
        "fix_hp",
        "e2e_time",
        "p_whole",
        "p_train",
        "p_core",
        "acc",
        "mem",
        "MFU",
    ]
    assert (row["precision"], row["acc"], row["mem"], row["MFU"]) == ("fp16", "0.802", "55.1/64.0", "26.7%")
    published = [reference for reference in MANIFEST.references if reference.values]
    assert len(tables(text)[2]) == 2 + len(published)
    assert re.search(rf"[(（]{1 + len(published)}[)）]</summary>", text)
