"""check_files: what is said about data on disk before a run starts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness, refusal
from weight_files import write_safetensors

from flagperf.errors import BadInput
from flagperf_cases.distilbert.data import check_files, encoder_shapes

CASE = CaseHarness("distilbert")

MODEL = {"layers": 2, "width": 8, "heads": 2, "ffn": 16, "vocabulary": 64, "sequence": 16}
CONFIG = {
    "dim": 8,
    "hidden_dim": 16,
    "n_heads": 2,
    "n_layers": 3,
    "vocab_size": 64,
    "max_position_embeddings": 20,
    "model_type": "distilbert",
    "activation": "gelu",
}
VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n" + "".join(f"word{number}\n" for number in range(60))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A checkpoint with one layer and four positions more than the model of these tests."""
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).write_text("sentence\tlabel\na good film \t1\nbad \t0\n")
    folder = tmp_path / "distilbert-base-uncased"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text(VOCABULARY)
    saved = encoder_shapes({**MODEL, "layers": 3, "sequence": 20}) | {"vocab_transform.weight": (8, 8)}
    write_safetensors(folder / "model.safetensors", saved)
    return tmp_path


def standard(**changes: Any) -> dict[str, Any]:
    """The published configuration, of a model that fits the small checkpoint."""
    return CASE.values("standard", **{f"model__{name}": size for name, size in MODEL.items()} | changes)


def problem(data_dir: Path | None, **changes: Any) -> str:
    return refusal(check_files, data_dir, standard(**changes))


def test_all_files_are_named_relative_to_the_folder_with_their_sha256(data_dir: Path) -> None:
    files = {file.path: file for file in check_files(data_dir, standard())}
    assert list(files) == [
        "SST-2/train.tsv",
        "SST-2/dev.tsv",
        "distilbert-base-uncased/vocab.txt",
        "distilbert-base-uncased/config.json",
        "distilbert-base-uncased/model.safetensors",
    ]
    weights, content = files["distilbert-base-uncased/model.safetensors"], (data_dir / list(files)[-1]).read_bytes()
    assert (weights.num_bytes, weights.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_made_up_data_needs_no_files(tmp_path: Path) -> None:
    assert check_files(None, CASE.values("tiny")) == []
    assert check_files(tmp_path / "absent", CASE.values("tiny")) == []


def test_without_the_checkpoint_only_its_vocabulary_is_read(data_dir: Path) -> None:
    folder = data_dir / "distilbert-base-uncased"
    (folder / "config.json").unlink()
    (folder / "model.safetensors").unlink()
    files = check_files(data_dir, standard(model__checkpoint=False))
    assert [file.path for file in files][2:] == ["distilbert-base-uncased/vocab.txt"]


def test_a_missing_folder_is_named(data_dir: Path) -> None:
    assert "no --data-dir was given" in problem(None)
    assert str(data_dir / "absent") in problem(data_dir / "absent")


@pytest.mark.parametrize("name", ["SST-2/train.tsv", "SST-2/dev.tsv", "distilbert-base-uncased/vocab.txt"])
def test_a_missing_file_is_named(data_dir: Path, name: str) -> None:
    (data_dir / name).unlink()
    assert str(data_dir / name) in problem(data_dir)


def test_missing_weights_are_named(data_dir: Path) -> None:
    (data_dir / "distilbert-base-uncased/model.safetensors").unlink()
    assert "neither model.safetensors nor pytorch_model.bin" in problem(data_dir)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"sentence\tlabel\n", "has a header and no rows"),
        (b"1\ta stirring , funny film\n", "line 1: expected the header"),
        (b"label\tsentence\n1\tgood\n", "line 1: expected the header"),
        (b"sentence\tlabel\nfine \t1\na good film 1\n", "line 3: expected sentence<TAB>label"),
        (b"sentence\tlabel\ngood\tvery\t1\n", "line 2: expected sentence<TAB>label"),
        (b"sentence\tlabel\nfine \tpositive\n", "line 2: the label must be 0 or 1, found 'positive'"),
        (b"sentence\tlabel\nfine \t1\r\n", "line 2 has a Windows line ending (CR LF)"),
        (b"sentence\tlabel\r\nfine \t1\r\n", "line 1 has a Windows line ending (CR LF)"),
        (b"sentence\tlabel\n \t1\n", "line 2: the sentence is empty"),
        (b"sentence\tlabel\n\xff\xfe \t1\n", "line 2 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("name", ["train.tsv", "dev.tsv"])
def test_a_faulty_data_file_is_described_by_line(data_dir: Path, name: str, content: bytes, words: str) -> None:
    path = data_dir / "SST-2" / name
    path.write_bytes(content)
    assert f"{path} {words}" in problem(data_dir)


def test_the_look_alike_without_a_header_is_told_apart(data_dir: Path) -> None:
    (data_dir / "SST-2/train.tsv").write_text("a stirring film\t1\n" * 6920)
    assert "6,920 rows" in problem(data_dir)


def test_only_a_line_feed_ends_a_line(data_dir: Path) -> None:
    (data_dir / "SST-2/dev.tsv").write_text("sentence\tlabel\none\x85two\u2028three \t1\n", encoding="utf-8")
    check_files(data_dir, standard())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("good\nbad\n", "is not BERT's vocabulary"),
        (VOCABULARY + "one\ntoo\n", "vocab.txt has 66 words, more than model.vocabulary=64"),
        (VOCABULARY.removesuffix("word59\n"), "vocab.txt has 63 words, fewer than model.vocabulary=64"),
    ],
)
def test_a_foreign_vocabulary_is_refused(data_dir: Path, content: str, words: str) -> None:
    (data_dir / "distilbert-base-uncased/vocab.txt").write_text(content)
    assert words in problem(data_dir)


def test_a_model_that_starts_random_may_have_room_for_more_words(data_dir: Path) -> None:
    check_files(data_dir, standard(model__checkpoint=False, model__vocabulary=128))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model__width": 16}, "dim=8, and this run has model.width=16"),
        ({"model__heads": 4}, "n_heads=2, and this run has model.heads=4"),
        ({"model__layers": 12}, "n_layers=3, fewer than model.layers=12"),
        ({"model__sequence": 1024}, "max_position_embeddings=20, fewer than model.sequence=1024"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused(data_dir: Path, change: dict[str, int], words: str) -> None:
    assert words in problem(data_dir, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": None}, "config.json: dim is None, not a whole number"),
        ({"n_heads": "2"}, "config.json: n_heads is '2', not a whole number"),
        ({"model_type": "bert"}, "is not of a DistilBERT with gelu (model_type 'bert'"),
        ({"activation": "relu"}, "activation 'relu'"),
    ],
)
def test_a_config_that_the_model_cannot_use_is_refused(data_dir: Path, change: dict[str, Any], words: str) -> None:
    (data_dir / "distilbert-base-uncased/config.json").write_text(json.dumps({**CONFIG, **change}))
    assert words in problem(data_dir)


@pytest.mark.parametrize("name", ["dim", "hidden_dim", "n_heads", "n_layers", "vocab_size", "max_position_embeddings"])
def test_a_field_that_the_config_lacks_is_named(data_dir: Path, name: str) -> None:
    config = {key: value for key, value in CONFIG.items() if key != name}
    (data_dir / "distilbert-base-uncased/config.json").write_text(json.dumps(config))
    assert f"config.json: {name} is missing" in problem(data_dir)


def test_a_broken_config_is_refused(data_dir: Path) -> None:
    (data_dir / "distilbert-base-uncased/config.json").write_text("{")
    assert "config.json is not JSON" in problem(data_dir)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"distilbert.embeddings.LayerNorm.bias": None}, "distilbert.embeddings.LayerNorm.bias is missing"),
        ({"pooler": (8,)}, "pooler is unknown"),
        ({"distilbert.transformer.layer.1.ffn.lin1.bias": (15,)}, "lin1.bias has the shape (15,), not (16,)"),
        ({"distilbert.embeddings.position_embeddings.weight": (12, 8)}, "has the shape (12, 8), not (16, 8)"),
    ],
)
def test_weights_that_do_not_fit_are_named_before_the_run(data_dir: Path, change: dict[str, Any], words: str) -> None:
    shapes = {**encoder_shapes({**MODEL, "layers": 3, "sequence": 20}), **change}
    path = data_dir / "distilbert-base-uncased/model.safetensors"
    write_safetensors(path, {name: shape for name, shape in shapes.items() if shape})
    message = problem(data_dir)
    assert f"{path} does not fit the model of this run: " in message and words in message


def test_an_encoder_that_was_saved_without_a_head_will_do(data_dir: Path) -> None:
    bare = {name.removeprefix("distilbert."): shape for name, shape in encoder_shapes(MODEL).items()}
    write_safetensors(data_dir / "distilbert-base-uncased/model.safetensors", bare)
    check_files(data_dir, standard())


def test_heads_have_to_divide_the_width(data_dir: Path) -> None:
    assert "model.width=8 is not divisible by model.heads=7" in problem(data_dir, model__heads=7)


def test_made_up_rows_have_to_be_counted() -> None:
    with pytest.raises(BadInput, match=r"data\.eval_rows"):
        check_files(None, CASE.values("tiny", data__eval_rows=0))
