"""check_files: what is said about values and data on disk before a run starts."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from case_harness import CaseHarness, refusal

from flagperf_cases.glm.data import check_files

CASE = CaseHarness("glm")

VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nann\nleft\nit\nwas\n"
RECORD = {
    "passage": {"text": "Ann left", "entities": [{"start": 0, "end": 2}]},
    "qas": [{"query": "it was @placeholder", "answers": [{"start": 0, "end": 2, "text": "Ann"}]}],
}
NAMES = [
    "ReCoRD/train.jsonl",
    "ReCoRD/val.jsonl",
    "bert-base-uncased/vocab.txt",
    "blocklm-large-blank/latest_checkpointed_iteration.txt",
    "blocklm-large-blank/200000/mp_rank_00_model_states.pt",
]


REAL = {"data__source": "record", "data__rows": 0, "data__eval_rows": 0, "model__checkpoint": True}
"""The tiny model on real files."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    from flagperf_cases.glm.case import Glm

    path = tmp_path_factory.mktemp("weights") / "weights.pt"
    torch.save({"module": Glm(SimpleNamespace(**CASE.values("tiny")["model"])).state_dict()}, path)
    return path


@pytest.fixture
def data_dir(weights: Path, tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    for name in NAMES[:2]:
        (tmp_path / name).write_text(json.dumps(RECORD) + "\n")
    (tmp_path / NAMES[2]).write_text(VOCABULARY)
    (tmp_path / NAMES[3]).write_text("200000")
    shutil.copy(weights, tmp_path / NAMES[4])
    return tmp_path


def real_values(**changes: Any) -> dict[str, Any]:
    return CASE.values("tiny", **{**REAL, **changes})


def problem(data_dir: Path | None, config: dict[str, Any] | None = None) -> str:
    return refusal(check_files, data_dir, config or real_values())


def test_all_files_are_named_relative_to_the_folder_with_their_sha256(data_dir: Path) -> None:
    files = {file.path: file for file in check_files(data_dir, real_values())}
    assert list(files) == NAMES
    content = (data_dir / NAMES[0]).read_bytes()
    assert (files[NAMES[0]].num_bytes, files[NAMES[0]].sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_made_up_data_needs_no_files(tmp_path: Path) -> None:
    assert check_files(None, CASE.values("tiny")) == []
    assert check_files(tmp_path / "absent", CASE.values("tiny")) == []


def test_without_the_checkpoint_none_is_read(data_dir: Path) -> None:
    (data_dir / NAMES[3]).unlink()
    assert [file.path for file in check_files(data_dir, real_values(model__checkpoint=False))] == NAMES[:3]


def test_a_missing_folder_is_named(data_dir: Path) -> None:
    assert "no --data-dir was given" in problem(None)
    assert str(data_dir / "absent") in problem(data_dir / "absent")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(data_dir: Path, name: str) -> None:
    (data_dir / name).unlink()
    message = problem(data_dir)
    assert f"cannot read {data_dir / name}" in message.replace("the weights ", "")
    assert "HDF5" not in message


def test_ready_made_arrays_are_refused_with_a_hint(data_dir: Path) -> None:
    arrays = data_dir / "ReCoRD/glm_train_eval_hdf5_sparse/train_hdf5/train_sparse.hdf5"
    arrays.parent.mkdir(parents=True)
    arrays.write_bytes(b"\x89HDF\r\n\x1a\n")
    check_files(data_dir, real_values())  # beside the text they do no harm
    for name in (NAMES[1], NAMES[2]):  # such a folder has no vocabulary either
        (data_dir / name).unlink()
    message = problem(data_dir)
    assert str(data_dir / NAMES[1]) in message
    assert "HDF5 arrays are not read" in message
    assert "super.gluebenchmark.com" in message


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_faulty_record_is_found_wherever_it_stands(data_dir: Path, name: str) -> None:
    with (data_dir / name).open("a") as file:
        file.write(json.dumps({**RECORD, "qas": []}) + "\n")
    assert f"{data_dir / name} line 2: a passage without queries" in problem(data_dir)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("good\nbad\n", "is not BERT's vocabulary"),
        (VOCABULARY.replace("[MASK]", "mask"), "is not BERT's vocabulary"),
        (VOCABULARY + "".join(f"x{n}\n" for n in range(54)), "gives 65 tokens, more than model.vocabulary=64"),
        (VOCABULARY + "ann\n", "has the word 'ann' 2 times"),
    ],
)
def test_a_foreign_vocabulary_is_refused(data_dir: Path, content: str, words: str) -> None:
    (data_dir / NAMES[2]).write_text(content)
    assert words in problem(data_dir)


def test_a_query_that_cannot_fit_is_found_before_the_run(data_dir: Path) -> None:
    long = {**RECORD, "qas": [{**RECORD["qas"][0], "query": "it was @placeholder" + " left" * 40}]}
    (data_dir / NAMES[1]).write_text(json.dumps(long) + "\n")
    check_files(data_dir, real_values(model__sequence=47))
    message = problem(data_dir, real_values(model__sequence=46))
    assert str(data_dir / NAMES[1]) in message
    assert "takes 47 positions" in message


def test_the_iteration_cannot_lead_out_of_the_folder(data_dir: Path) -> None:
    (data_dir / NAMES[3]).write_text("../../elsewhere")
    assert "should hold the name of a folder like 200000" in problem(data_dir)


def test_a_pointer_in_place_of_the_weights_is_refused(data_dir: Path) -> None:
    (data_dir / NAMES[4]).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "cannot read the weights" in problem(data_dir)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__heads": 5}, "model.width=64 is not divisible by model.heads=5"),
        ({"data__rows": 0}, "data.rows"),
        ({"data__eval_rows": 0}, "data.eval_rows"),
        ({"model__vocabulary": 20}, "needs model.vocabulary=32, and it is 20"),
        ({"model__sequence": 32}, "needs model.sequence=33, and it is 32"),
        ({"training__schedule_steps": 3, "training__accumulate": 4}, "training.schedule_steps=3"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], words: str) -> None:
    assert words in problem(None, CASE.values("tiny", **changes))
