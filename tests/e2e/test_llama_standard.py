"""The published configuration at true width, cut to what a CPU can do in seconds."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, flagperf, metric, read_run

from flagperf_cases.llama2_7b_finetune.checkpoint import wanted_shapes

pytestmark = pytest.mark.run

MODEL = {
    "layers": 1, "width": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocabulary": 32000, "tied": False,
}  # fmt: skip


@pytest.fixture
def data_dir(tmp_path: Path, shared_data: Path) -> Path:
    """Real tokenizer and questions, dialogues in the form of SAMSum, and one layer of true width whose weights are all
    zero: the file is a hole, so that nearly a gigabyte takes no room."""
    folder = tmp_path / "data"
    checkpoint = folder / "llama2_7b_hf"
    checkpoint.mkdir(parents=True)
    (checkpoint / "tokenizer.model").symlink_to(shared_data / "tokenizers/llama_sentencepiece/tokenizer.model")
    (checkpoint / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 1,
        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096, "tie_word_embeddings": False,
    }))  # fmt: skip
    _write_zeros(checkpoint / "model.safetensors")
    (folder / "mmlu_dataset").symlink_to(shared_data / "mmlu/data")
    (folder / "samsum_dataset").mkdir()
    dialogue = {"id": "1", "dialogue": "Ann: Are you there?\r\nBob: I am.", "summary": "Bob is there."}
    for split in ("train", "val", "test"):
        (folder / "samsum_dataset" / f"{split}.json").write_text(json.dumps([dialogue] * 60))
    return folder


def _write_zeros(path: Path) -> None:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in wanted_shapes(MODEL).items():
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
        work, "run", "llama2_7b_finetune", "--profile", "standard", "--data-dir", str(data_dir), "--set",
        "model.layers=1", "training.max_steps=2", "training.batch_size=1", "training.warmup_steps=1",
        "model.sequence=128", "data.num_workers=0", "evaluation.max_rows=1", "evaluation.subjects=1",
        "evaluation.questions=1", "evaluation.shots=1",
    )  # fmt: skip
    assert done.code == 0, done.stderr
    run = read_run(bundle_of(work))
    assert metric(run, "steps_kept")["value"] == 1
    assert metric(run, "loss")["value"] == pytest.approx(math.log(32000), abs=1e-4)  # all tokens are equally likely
    assert metric(run, "padding_ratio")["value"] == 0
    found = metric(run, "tflops_per_device")["inputs"]
    assert (found["formula"], found["sequence"], found["lora_parameters"]) == ("exact-lora", 128, 4_194_304 // 32)
    assert found["parameters"] == 6_738_415_616 - 31 * 202_383_360
    accuracy = metric(run, "acc(MMLU)")["inputs"]
    assert list(accuracy["parts"]["subject"]) == ["abstract_algebra"]
    assert accuracy["evaluated"] == 1
    page = flagperf(work, "report", "latest", "--format", "md", "--lang", "zh").stdout
    assert "acc(MMLU)按category：STEM" in page
    assert "2788" in page  # a published result, beside ours
