"""The published configuration at true width, cut to what a CPU can do in seconds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, flagperf, metric, read_run
from sentencepiece_models import fill_vocabulary, train_tokenizer

from flagperf_cases.checkpoint_files import llama_shapes
from flagperf_cases.llama2_7b_finetune.data import training_text
from flagperf_cases.llama2_7b_finetune.mmlu import SUBJECTS, Question, Subject, prompt_text

pytestmark = [pytest.mark.run, pytest.mark.full]

MODEL = {
    "layers": 1,
    "width": 4096,
    "heads": 32,
    "kv_heads": 32,
    "ffn": 11008,
    "vocabulary": 32000,
    "tied": False,
}


DIALOGUE = {"id": "1", "dialogue": "Ann: Are you there?\r\nBob: I am.", "summary": "Bob is there."}
NUM_DIALOGUES = {"train": 270, "val": 140, "test": 140}
QUESTION = "What?,one,two,three,four,B\n"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The real layout with few short texts, so that the evaluations are short as well."""
    folder = tmp_path / "data"
    for name in ("llama2_7b_hf", "samsum_dataset", "mmlu_dataset/dev", "mmlu_dataset/test"):
        (folder / name).mkdir(parents=True)
    for split, count in NUM_DIALOGUES.items():
        (folder / "samsum_dataset" / f"{split}.json").write_text(json.dumps([DIALOGUE] * count))
    for subject in SUBJECTS:
        (folder / "mmlu_dataset/dev" / f"{subject}_dev.csv").write_text(QUESTION * 5)
        (folder / "mmlu_dataset/test" / f"{subject}_test.csv").write_text(QUESTION)
    _write_model(folder / "llama2_7b_hf")
    return folder


def _write_model(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 4096,
                "num_hidden_layers": 1,
                "num_attention_heads": 32,
                "intermediate_size": 11008,
                "vocab_size": 32000,
                "rms_norm_eps": 1e-5,
                "max_position_embeddings": 4096,
                "tie_word_embeddings": False,
            }
        )
    )
    _write_zeros(folder / "model.safetensors")
    subject = Subject("of all", "", (), ())
    question = Question("What?", ("one", "two", "three", "four"), 1)
    texts = [training_text(DIALOGUE), prompt_text(subject, [question] * 5, question), *SUBJECTS]
    # Long pieces: a question is a few tokens.
    train_tokenizer(
        folder / "tokenizer.model",
        texts,
        num_pieces=600,
        max_sentencepiece_length=60,
        split_by_whitespace=False,
        split_by_unicode_script=False,
    )
    fill_vocabulary(folder / "tokenizer.model", 32_000)


def _write_zeros(path: Path) -> None:
    """The file is a hole, so that nearly a gigabyte takes no room."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in llama_shapes(MODEL).items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}  # type: ignore[dict-item]
        end += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def test_two_steps_at_true_width(tmp_path: Path, data_dir: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = flagperf(
        work,
        "run",
        "llama2_7b_finetune",
        "--profile",
        "standard",
        "--data-dir",
        str(data_dir),
        "--set",
        "model.layers=1",
        "training.max_steps=2",
        "training.batch_size=1",
    )
    assert done.code == 0, done.stderr
    run = read_run(bundle_of(work))
    assert metric(run, "steps_dropped")["value"] == 2  # the published warm-up is longer
    for name in ("loss", "val_loss", "test_loss"):
        assert metric(run, name)["value"] == pytest.approx(math.log(32000), abs=1e-4)  # all tokens are equally likely
    accuracy = metric(run, "acc(MMLU)")["inputs"]
    assert (accuracy["evaluated"], len(accuracy["parts"]["category"])) == (57, 4)
    assert list(accuracy["parts"]["subject"]) == list(SUBJECTS)
    assert (metric(run, "mmlu_shots")["value"], metric(run, "mmlu_cut")["value"]) == (5, 0)
    assert metric(run, "mmlu_original")["value"] == 0  # of equally likely tokens the first one is taken
    events = (bundle_of(work) / "events/rank-00000.jsonl").read_bytes().splitlines()
    (model,) = [event for event in map(json.loads, events) if event["type"] == "model_described"]
    assert (model["sequence"], model["lora_parameters"]) == (512, 4_194_304 // 32)
    assert model["parameters"] == 6_738_415_616 - 31 * 202_383_360
    steps = [event for event in map(json.loads, events) if event["type"] == "step_finished"]
    assert [step["work"]["tokens"] for step in steps] == [512, 512]
    page = flagperf(work, "report", "latest", "--format", "md", "--lang", "zh").stdout
    assert "acc(MMLU)按category：STEM" in page
    assert "2788" in page  # a published result, beside ours
