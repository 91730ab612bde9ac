"""check_files: what is said about data on disk before a run starts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from distilbert_harness import values

from flagperf.errors import BadInput
from flagperf_cases.distilbert.data import check_files

CONFIG = {"dim": 768, "hidden_dim": 3072, "n_heads": 12, "n_layers": 6, "vocab_size": 30522}
VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\n"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "SST-2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "SST-2" / name).write_text("sentence\tlabel\na good film \t1\nbad \t0\n")
    folder = tmp_path / "distilbert-base-uncased"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 512}))
    (folder / "vocab.txt").write_text(VOCABULARY)
    (folder / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def problem(data_dir: Path | None, **changes: Any) -> str:
    with pytest.raises(BadInput) as caught:
        check_files(data_dir, values("standard", **changes))
    message = str(caught.value)
    assert ";" in message  # what to do stands behind what was found
    return message


def test_all_files_are_named_relative_to_the_folder_with_their_sha256(data_dir: Path) -> None:
    files = {file.path: file for file in check_files(data_dir, values("standard"))}
    assert list(files) == [
        "SST-2/train.tsv", "SST-2/dev.tsv", "distilbert-base-uncased/vocab.txt", "distilbert-base-uncased/config.json",
        "distilbert-base-uncased/model.safetensors",
    ]  # fmt: skip
    weights = files["distilbert-base-uncased/model.safetensors"]
    assert (weights.num_bytes, weights.sha256) == (7, hashlib.sha256(b"weights").hexdigest())


def test_safetensors_are_preferred_and_a_pickle_will_do(data_dir: Path) -> None:
    folder = data_dir / "distilbert-base-uncased"
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    assert check_files(data_dir, values("standard"))[-1].path.endswith("model.safetensors")
    (folder / "model.safetensors").unlink()
    assert check_files(data_dir, values("standard"))[-1].path.endswith("pytorch_model.bin")


def test_made_up_data_needs_no_files(tmp_path: Path) -> None:
    assert check_files(None, values("tiny")) == []
    assert check_files(tmp_path / "absent", values("tiny")) == []


def test_without_the_checkpoint_only_its_vocabulary_is_read(data_dir: Path) -> None:
    folder = data_dir / "distilbert-base-uncased"
    (folder / "config.json").unlink()
    (folder / "model.safetensors").unlink()
    files = check_files(data_dir, values("standard", model__checkpoint=False))
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
        (b"sentence\tlabel\nfine \t1\r\n", "line 2: the label must be 0 or 1"),
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
    check_files(data_dir, values("standard"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("good\nbad\n", "is not BERT's vocabulary"),
        (VOCABULARY + "x\n" * 30522, "30528 words, more than model.vocabulary=30522"),
    ],
)
def test_a_foreign_vocabulary_is_refused(data_dir: Path, content: str, words: str) -> None:
    (data_dir / "distilbert-base-uncased/vocab.txt").write_text(content)
    assert words in problem(data_dir)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model__width": 384}, "dim=768, and this run has model.width=384"),
        ({"model__heads": 6}, "n_heads=12, and this run has model.heads=6"),
        ({"model__layers": 12}, "n_layers=6, fewer than model.layers=12"),
        ({"model__sequence": 1024}, "max_position_embeddings=512, fewer than model.sequence=1024"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused(data_dir: Path, change: dict[str, int], words: str) -> None:
    assert words in problem(data_dir, **change)


def test_a_broken_config_is_refused(data_dir: Path) -> None:
    (data_dir / "distilbert-base-uncased/config.json").write_text("{")
    assert "config.json is not JSON" in problem(data_dir)


def test_heads_have_to_divide_the_width(data_dir: Path) -> None:
    assert "model.width=768 cannot be shared by model.heads=7" in problem(data_dir, model__heads=7)


def test_made_up_rows_have_to_be_counted() -> None:
    with pytest.raises(BadInput, match=r"data\.eval_rows"):
        check_files(None, values("tiny", data__eval_rows=0))
