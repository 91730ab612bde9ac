"""data check: all that a case needs in a folder, in one list; whether it is right is for the case to say."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from flagperf.cli import run_cli
from flagperf.testing import shared_file

WITHOUT_WEIGHTS = ("--set", "model.checkpoint=false")


pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def sst2(tmp_path: Path) -> Path:
    folder = tmp_path / "DIR with a space"
    shutil.copytree(shared_file(__file__, "data/sst2/SST-2"), folder / "SST-2")
    (folder / "distilbert-base-uncased").mkdir()
    vocabulary = shared_file(__file__, "data/tokenizers/bert-base-uncased/vocab.txt")
    shutil.copy(vocabulary, folder / "distilbert-base-uncased")
    return folder


def check(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run_cli(["data", "check", *map(str, arguments)])
    printed = capfd.readouterr()
    return code, printed.out, printed.err


def check_json(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    code, out, _ = check(capfd, *arguments, "--json")
    return code, json.loads(out)


def states(found: Any) -> dict[str, str]:
    return {file["name"]: file["state"] for item in found["items"] for file in item["files"]}


def test_an_empty_folder_lacks_everything_and_says_where_to_get_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = check(capfd, "distilbert", tmp_path)
    assert code == 2
    assert out.count("missing") == 5
    assert "from     https://gluebenchmark.com/tasks" in out
    assert f"command  unzip SST-2.zip 'SST-2/train.tsv' 'SST-2/dev.tsv' -d {tmp_path}" in out
    assert "SST-2/train.tsv: No such file or directory" in err


def test_what_is_there_and_no_file_is_told_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "SST-2").mkdir()
    os.mkfifo(tmp_path / "SST-2" / "train.tsv")
    (tmp_path / "SST-2" / "dev.tsv").symlink_to(tmp_path / "nowhere")
    code, found = check_json(capfd, "distilbert", tmp_path)
    assert code == 2
    assert {states(found)[f"SST-2/{name}.tsv"] for name in ("train", "dev")} == {"not a file"}
    assert states(found)["distilbert-base-uncased/config.json"] == "missing"
    assert "gluebenchmark" in check(capfd, "distilbert", tmp_path)[1]


def test_what_is_there_is_listed_with_size_rows_and_sha256(sst2: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = check_json(capfd, "distilbert", sst2, *WITHOUT_WEIGHTS)
    assert (code, found["problem"], found["profile"]) == (0, "", "standard")
    files = {file["path"]: file for item in found["items"] for each in item["files"] for file in each["files"]}
    dev = sst2 / "SST-2" / "dev.tsv"
    assert files["SST-2/dev.tsv"] == {
        "path": "SST-2/dev.tsv",
        "num_bytes": dev.stat().st_size,
        "rows": 872,
        "sha256": hashlib.sha256(dev.read_bytes()).hexdigest(),
    }
    assert files["distilbert-base-uncased/vocab.txt"]["rows"] == 30_522
    code, out, err = check(capfd, "distilbert", sst2, *WITHOUT_WEIGHTS)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"distilbert accepts {sst2} for profile standard"


def test_what_is_missing_beside_what_is_there_is_told_apart(sst2: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found = check_json(capfd, "distilbert", sst2)
    assert code == 2
    assert states(found)["SST-2/train.tsv"] == "found"
    assert states(found)["distilbert-base-uncased/config.json"] == "missing"
    _, out, _ = check(capfd, "distilbert", sst2)
    assert f"--local-dir '{sst2}'/distilbert-base-uncased" in out
    assert "gluebenchmark" not in out  # it is there


def test_content_that_the_case_refuses_is_no_success(sst2: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dev = sst2 / "SST-2" / "dev.tsv"
    dev.write_text(dev.read_text().partition("\n")[2])
    code, out, err = check(capfd, "distilbert", sst2, *WITHOUT_WEIGHTS)
    assert code == 2
    assert "missing" not in out
    assert out.splitlines()[-1] == "all files are there, and the case does not accept them:"
    assert "6,920 rows and no header" in err


def test_text_of_any_name_is_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, path in (("text/a.txt", "wikipedia/wikitext-2/valid.txt"), ("text/b.txt", "wikipedia/wikitext-2/README")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(shared_file(__file__, f"data/{path}"), tmp_path / name)
    _copy_tokenizer(tmp_path / "tokenizer")
    code, found = check_json(capfd, "llama2_70b", tmp_path, "--set", "data.source=text", "model.vocabulary=32000")
    assert (code, found["problem"]) == (0, "")
    assert [file["path"] for file in found["items"][0]["files"][0]["files"]] == ["text/a.txt", "text/b.txt"]


def test_what_the_case_accepts_the_folder_without_is_not_needed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _copy_tokenizer(tmp_path / "llama2_7b_hf")
    (tmp_path / "samsum_dataset").mkdir()
    dialogue = {"id": "1", "dialogue": "Ann: " + "hello " * 20, "summary": "Ann greets."}
    for name in ("train", "val", "test"):
        (tmp_path / "samsum_dataset" / f"{name}.json").write_text(json.dumps([dialogue] * 3))
    values = (*WITHOUT_WEIGHTS, "evaluation.subjects=0", "model.sequence=16")
    code, found = check_json(capfd, "llama2_7b_finetune", tmp_path, *values)
    assert (code, found["problem"]) == (0, "")
    assert states(found)["mmlu_dataset/dev/*_dev.csv"] == "not needed"
    assert found["items"][0]["files"][0]["files"][0]["rows"] == 3


def _copy_tokenizer(folder: Path) -> None:
    folder.mkdir()
    shutil.copy(shared_file(__file__, "data/tokenizers/llama_sentencepiece/tokenizer.model"), folder)


def test_files_of_one_kind_are_one_line_and_single_in_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(shared_file(__file__, "data/mmlu/data"), tmp_path / "mmlu_dataset")
    code, out, _ = check(capfd, "llama2_7b_finetune", tmp_path)
    assert code == 2
    assert "mmlu_dataset/dev/*_dev.csv (57 files)" in out
    assert " 285 " in out
    _, found = check_json(capfd, "llama2_7b_finetune", tmp_path)
    (mmlu,) = (item for item in found["items"] if item["data"]["name"] == "MMLU")
    assert [len(file["files"]) for file in mmlu["files"]] == [57, 57]
    assert all(len(file["sha256"]) == 64 for file in mmlu["files"][0]["files"])
    assert (mmlu["data"]["licence"], mmlu["data"]["url"]) == ("MIT", "https://github.com/hendrycks/test")


def test_one_of_several_names_is_enough(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(shared_file(__file__, "data/lambada/lambada_test.jsonl"), tmp_path / "data")
    shutil.copytree(shared_file(__file__, "data/tokenizers/aquila"), tmp_path / "tokenizer")
    code, found = check_json(capfd, "aquila_33b", tmp_path, "--set", "model.checkpoint=none")
    assert code == 0
    assert set(states(found).values()) == {"found"}
    assert found["items"][0]["files"][0]["files"][0]["path"] == "data/lambada_test.jsonl"


def test_values_name_files_and_a_profile_that_reads_nothing_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, found = check_json(capfd, "llama2_70b", tmp_path, "--set", "data.prefix=mine")
    assert states(found) == {"mine.bin": "missing", "mine.idx": "missing"}
    assert check(capfd, "distilbert", tmp_path, "--profile", "tiny")[:2] == (
        0,
        "profile tiny of distilbert reads no files with these values\n",
    )
    assert check(capfd, "gemm", tmp_path)[0] == 0
