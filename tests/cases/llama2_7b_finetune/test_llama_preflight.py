"""check_files: what is said about values and data before a run starts."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness, refusal
from sentencepiece_models import train_tokenizer
from weight_files import safetensors

from flagperf.errors import BadInput
from flagperf_cases.checkpoint_files import llama_shapes
from flagperf_cases.llama2_7b_finetune.data import check_files

CASE = CaseHarness("llama2_7b_finetune")

SHAPE = {
    "model__layers": 1,
    "model__width": 16,
    "model__heads": 4,
    "model__kv_heads": 2,
    "model__ffn": 24,
    "model__vocabulary": 64,
    "model__sequence": 32,
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 64,
    "num_hidden_layers": 1,
}


def small(**changes: Any) -> dict[str, Any]:
    return CASE.values("standard", **{**SHAPE, "evaluation__subjects": 1, **changes})


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    checkpoint = folder / "llama2_7b_hf"
    checkpoint.mkdir()
    train_tokenizer(checkpoint / "tokenizer.model")
    (checkpoint / "config.json").write_text(json.dumps(CONFIG))
    shapes = llama_shapes(small()["model"])
    first, second = ({name: shapes[name] for name in list(shapes)[start::2]} for start in range(2))
    (checkpoint / "model-00001-of-00002.safetensors").write_bytes(safetensors(first))
    (checkpoint / "model-00002-of-00002.safetensors").write_bytes(safetensors(second))
    places = dict.fromkeys(first, "model-00001-of-00002.safetensors")
    places |= dict.fromkeys(second, "model-00002-of-00002.safetensors")
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "samsum_dataset").mkdir()
    for split in ("train", "val", "test"):
        dialogue = {"id": "1", "dialogue": "the quick brown fox\r\njumps over", "summary": "a fox jumps"}
        (folder / "samsum_dataset" / f"{split}.json").write_text(json.dumps([dialogue] * 3))
    for kind in ("dev", "test"):
        (folder / "mmlu_dataset" / kind).mkdir(parents=True)
        (folder / "mmlu_dataset" / kind / f"abstract_algebra_{kind}.csv").write_text("q,1,2,3,4,A\n" * 5)
    return folder


@pytest.fixture
def data_dir(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "data")
    return tmp_path / "data"


def problem(data_dir: Path | None, **changes: Any) -> str:
    return refusal(check_files, data_dir, small(**changes))


def test_all_files_are_named_with_their_sha256_shards_included(data_dir: Path) -> None:
    files = {file.path: file for file in check_files(data_dir, small())}
    assert list(files) == [
        "llama2_7b_hf/tokenizer.model",
        "samsum_dataset/train.json",
        "samsum_dataset/val.json",
        "samsum_dataset/test.json",
        "mmlu_dataset/dev/abstract_algebra_dev.csv",
        "mmlu_dataset/test/abstract_algebra_test.csv",
        "llama2_7b_hf/config.json",
        "llama2_7b_hf/model.safetensors.index.json",
        "llama2_7b_hf/model-00001-of-00002.safetensors",
        "llama2_7b_hf/model-00002-of-00002.safetensors",
    ]
    expected = hashlib.sha256((data_dir / "samsum_dataset/val.json").read_bytes()).hexdigest()
    assert files["samsum_dataset/val.json"].sha256 == expected


def test_made_up_data_need_no_files(tmp_path: Path) -> None:
    assert check_files(None, CASE.values("tiny")) == []
    assert check_files(tmp_path / "absent", CASE.values("tiny")) == []


def test_without_the_checkpoint_only_its_tokenizer_is_read(data_dir: Path) -> None:
    (data_dir / "llama2_7b_hf/config.json").unlink()
    files = [file.path for file in check_files(data_dir, small(model__checkpoint=False, evaluation__subjects=0))]
    assert files == ["llama2_7b_hf/tokenizer.model", *(f"samsum_dataset/{n}.json" for n in ("train", "val", "test"))]


def test_a_missing_folder_is_named(data_dir: Path) -> None:
    assert "no --data-dir was given" in problem(None)
    assert str(data_dir / "absent") in problem(data_dir / "absent")


@pytest.mark.parametrize(
    "name",
    [
        "llama2_7b_hf/tokenizer.model",
        "llama2_7b_hf/config.json",
        "llama2_7b_hf/model-00002-of-00002.safetensors",
        "samsum_dataset/test.json",
        "mmlu_dataset/dev/abstract_algebra_dev.csv",
    ],
)
def test_a_missing_file_is_named(data_dir: Path, name: str) -> None:
    (data_dir / name).unlink()
    assert str(data_dir / name) in problem(data_dir)


def test_too_few_examples_for_the_shots_are_refused(data_dir: Path) -> None:
    path = data_dir / "mmlu_dataset/dev/abstract_algebra_dev.csv"
    path.write_text("q,1,2,3,4,A\n" * 4)
    assert f"{path} has 4 examples, fewer than evaluation.shots=5" in problem(data_dir)
    check_files(data_dir, small(evaluation__shots=4))


def test_dialogues_that_do_not_fill_a_row_are_refused(data_dir: Path) -> None:
    assert "fewer than one row of model.sequence=512" in problem(data_dir, model__sequence=512)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_size": 32}, "hidden_size=32, and this run has model.width=16"),
        ({"num_key_value_heads": 4}, "num_key_value_heads=4, and this run has model.kv_heads=2"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings=True, and this run has model.tied=False"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0, fewer than model.layers=1"),
        ({"model_type": "mistral"}, "of type 'mistral', not llama"),
    ],
)
def test_a_config_of_another_model_is_refused(data_dir: Path, change: dict[str, Any], words: str) -> None:
    (data_dir / "llama2_7b_hf/config.json").write_text(json.dumps({**CONFIG, **change}))
    assert words in problem(data_dir)


def test_files_that_transformers_would_obey_unasked_are_checked_too(data_dir: Path) -> None:
    (data_dir / "llama2_7b_hf/generation_config.json").write_text('{"max_length": 4096}')
    check_files(data_dir, small())
    (data_dir / "llama2_7b_hf/generation_config.json").write_text("{")
    assert "generation_config.json is not JSON" in problem(data_dir)
    (data_dir / "llama2_7b_hf/generation_config.json").unlink()
    (data_dir / "llama2_7b_hf/adapter_config.json").write_text("{}")
    assert "it is an adapter, not a whole model" in problem(data_dir)


def test_weights_of_another_shape_are_refused_before_they_are_read(data_dir: Path) -> None:
    shapes = {**llama_shapes(small()["model"]), "model.norm.weight": (17,)}
    (data_dir / "llama2_7b_hf/model.safetensors").write_bytes(safetensors(shapes))
    assert "model.norm.weight has the shape (17,), not (16,)" in problem(data_dir)


def test_further_layers_and_old_rotary_frequencies_do_not_matter(data_dir: Path) -> None:
    more = {**llama_shapes({**small()["model"], "layers": 2}), "model.layers.0.self_attn.rotary_emb.inv_freq": (2,)}
    (data_dir / "llama2_7b_hf/model.safetensors").write_bytes(safetensors(more))
    (data_dir / "llama2_7b_hf/config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))
    check_files(data_dir, small())


def test_a_torn_shard_is_refused(data_dir: Path) -> None:
    path = data_dir / "llama2_7b_hf/model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert str(path) in problem(data_dir)


def test_a_tokenizer_that_is_larger_than_the_model_is_refused(data_dir: Path) -> None:
    assert "tokens, more than model.vocabulary=20" in problem(data_dir, model__vocabulary=20)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__heads": 3}, "model.width=16 is not divisible by model.heads=3"),
        ({"model__kv_heads": 3}, "model.heads=4 is not divisible by model.kv_heads=3"),
        ({"model__heads": 16, "model__kv_heads": 16}, "model.width / model.heads = 1 is odd"),
        ({"model__sequence": 5000}, "model.sequence=5000 is more than model.positions=4096"),
        ({"lora__targets": []}, "lora.targets is empty"),
        ({"lora__targets": ["q_proj", "v_porj"]}, "unknown layer 'v_porj'; did you mean v_proj"),
        ({"model__save_to": f"{__file__}/merged"}, f"cannot be created in {__file__}"),
        ({"model__save_to": "merged"}, "model.save_to=merged is relative"),
        ({"model__save_to": "/"}, "model.save_to=/ already exists"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], words: str) -> None:
    assert words in problem(None, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__eval_rows": 0}, "data.eval_rows"),
        ({"evaluation__subjects": 57}, "synthetic has 2 subjects"),
        ({"evaluation__questions": 0}, "evaluation.questions"),
        ({"model__vocabulary": 20}, "more than model.vocabulary=20"),
    ],
)
def test_what_cannot_be_made_up_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_files(None, CASE.values("tiny", **changes))
