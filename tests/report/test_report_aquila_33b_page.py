"""The page of aquila_33b, from its own manifest: the family of inference pages. Golden as the others."""

import os
import re
from pathlib import Path

import pytest
from report_builders import GIB, changed, job, metric, metrics, no_metric, recorded
from report_parsing import LANGUAGES, performance, tables, unpadded

from flagperf.api import DataFile, Peak, precision
from flagperf.errors import BadInput
from flagperf.messages import message
from flagperf.plugins.installed import load_plugins
from flagperf_publish.pages.layouts import page

ROOT = Path(__file__).parents[2]
MANIFEST = load_plugins().case("aquila_33b").manifest
PEAK = Peak("MetaX C500", "bf16", 240e12, "MetaX C500 product brief", "high")
FILES = (
    "ckpts/latest_checkpointed_iteration.txt",
    "ckpts/iter_0135000/mp_rank_00/model_optim_rng.pt",
    "ckpts/iter_0135000/mp_rank_01/model_optim_rng.pt",
    "data/lambada_test.jsonl",
)
NO_FRAMEWORK = message("inference.engine_alone")


def aquila_run(**speeds):
    plan = job(
        run_id="20250102T030405Z-aquila_33b-metax-1x8-aaaa",
        nodes=1,
        manifest=MANIFEST,
        precision=precision("bf16"),
        peaks=(PEAK,),
        tuning={"parallel.tp": 8, "parallel.pp": 1, "parallel.dp": 1},
        set_values={},
        data_files=tuple(DataFile(path, 1000, "4a" * 32) for path in FILES),
    )
    tflops = 2400.0 / 8 * 66_217_000_000 / 1e12
    figures = metrics(
        e2e_time=600.0,
        samples_kept=5148,
        steps_kept=5148,
        steps_dropped=5,
        padding_ratio=0.05,
        mem_used=12.3 * GIB,
        mfu=tflops / 240,
        tflops_per_device=tflops,
        loss=3.0075,
        loss_per_token=2.98,
        perplexity=20.24,
    )
    for name in ("target", "p_whole", "p_train", "p_core", "loss_first"):
        figures.pop(name, None)
    figures["acc"] = metric("acc", 0.651)
    for name, value in {"p_infer_whole": 2100.0, "p_infer_core": 2280.0, "p_infer_padded": 2400.0, **speeds}.items():
        figures[name] = metric(name, value)
    engine = {"engine": "flagperf decoder (torch 2.6.0)", "timing": "device_events"}
    figures["p_infer_core"] = changed(figures["p_infer_core"], inputs=engine)
    for name in ("p_val_whole", "p_val_core"):
        figures[name] = no_metric(name, "not_applicable", NO_FRAMEWORK)
    inputs = {"formula": "exact-infer", "parameters": 33_693_554_688, "matmul_parameters": 33_078_362_112}
    figures["mfu"] = changed(figures["mfu"], inputs=inputs)
    figures["mfu_nominal-2n"] = metric("mfu_nominal-2n", 0.085, inputs={"formula": "nominal-2n"})
    figures["mfu_palm"] = metric("mfu_palm", 0.091, inputs={"formula": "palm-infer"})
    return recorded(plan.run_id, plan=plan, manifest=MANIFEST, figures=figures)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_equals_the_golden_one(lang):
    path = ROOT / f"tests/golden/aquila_33b-{lang}.md"
    text = page([aquila_run()], lang)
    if os.environ.get("FLAGPERF_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text.encode() == path.read_bytes()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_has_the_columns_of_its_family_and_the_published_row(lang):
    text = page([aquila_run()], lang)
    (row,) = performance(text)
    assert list(row)[1] == {"en": "Engine", "zh": "推理工具"}[lang]
    assert list(row.values())[1] == "flagperf decoder (torch 2.6.0)"
    assert (row["parallel"], row["p_infer_core"], row["p_infer_padded"]) == ("TP8PP1DP1", "2280.0", "2400.0")
    assert row["p_val_core"].startswith("/[^")
    assert len(tables(text)[2]) == 2 + len(MANIFEST.references)


@pytest.mark.parametrize(
    ("lang", "began", "row"),
    [
        ("en", "212.5 s after inference began", "| Last-word accuracy | acc, see “Values” |"),
        ("zh", "在推理开始后212.5秒", "| 末词准确率 | acc,见“指标值” |"),
    ],
)
def test_notes_and_rows_speak_of_inference(lang, began, row):
    text = unpadded(page([aquila_run()], lang))
    assert began in text and row in text
    assert "training" not in text.lower() and "训练" not in text


def test_mfu_has_the_other_formulas_of_inference_beside_it():
    assert "formula only: nominal-2n 8.5%, palm-infer 9.1%" in page([aquila_run()], "en")


def test_qualities_of_one_evaluation_share_a_sentence():
    run = aquila_run()
    both = [
        changed(each, inputs={"evaluated": 5153}) if each.name in ("loss", "acc") else each for each in run.run.metrics
    ]
    assert "loss, acc over 5,153 evaluated rows" in page(
        [changed(run, run=changed(run.run, metrics=tuple(both)))], "en"
    )


SECTIONS = {
    "en": ["1. Dataset", "2. Model and weights", "3. Hardware and software", "4. Results", "Notes"],
    "zh": ["1. 推理数据集", "2. 模型与权重", "3. 软硬件配置与运行信息参考", "4. 运行情况", "注"],
}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_page_has_the_numbered_sections_of_its_family(lang):
    text = page([aquila_run()], lang)
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == SECTIONS[lang]
    assert {"en": "#### 3.1 MetaX C500", "zh": "#### 3.1 沐曦 C500"}[lang] in text
    parts = [
        text.index(words[lang])
        for words in (
            {"en": "##### Parallelism", "zh": "##### 并行策略"},
            {"en": "##### Hardware", "zh": "##### 硬件环境"},
            {"en": "##### Software", "zh": "##### 软件环境"},
            {"en": "##### Inference engine", "zh": "##### 推理工具包"},
        )
    ]
    assert parts == sorted(parts)


def test_page_shows_the_folder_of_data_as_a_tree():
    assert """```text
├── ckpts
│   ├── iter_0135000
│   │   ├── mp_rank_00
│   │   │   └── model_optim_rng.pt
│   │   └── mp_rank_01
│   │       └── model_optim_rng.pt
│   └── latest_checkpointed_iteration.txt
└── data
    └── lambada_test.jsonl
```""" in page([aquila_run()], "zh")


def test_a_run_without_data_has_no_tree_and_says_that_its_data_was_made():
    run = aquila_run()
    text = page([changed(run, run=changed(run.run, job=changed(run.run.job, data_files=())))], "en")
    assert "```" not in text
    assert "- LAMBADA (not this dataset: synthetic rows generated by the case)" in text


def test_computing_slower_than_the_whole_loop_is_refused():
    with pytest.raises(BadInput, match="p_infer_core >= p_infer_whole"):
        page([aquila_run(p_infer_core=2000.0)], "en")
