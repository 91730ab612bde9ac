"""Data that would hang the command or fill the memory, by the real command: one message, exit code 2, nothing left."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from data_folders import FOLDERS
from e2e_flagperf import flagperf

pytestmark = pytest.mark.run


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 24))


@pytest.mark.parametrize(
    ("name", "file", "put", "words"),
    [
        ("tokens", "tokens.bin", pipe, "tokens.bin is a pipe, not a regular file"),
        ("hf", "data/lambada_test.jsonl", endless, "lambada_test.jsonl is a device, not a regular file"),
        ("glm", "blocklm-large-blank/200000/mp_rank_00_model_states.pt", bomb, "it is a compressed archive"),
    ],
)
def test_hostile_data_ends_the_command_before_anything_starts(
    tmp_path: Path, name: str, file: str, put: object, words: str
) -> None:
    folder = FOLDERS[name]
    (tmp_path / "data").mkdir()
    folder.write(tmp_path / "data", folder.values())
    (tmp_path / "data" / file).unlink()
    put(tmp_path / "data" / file)  # type: ignore[operator]
    changes = [f"{key.replace('__', '.')}={value}".replace("True", "true") for key, value in folder.changes.items()]
    command = ["run", folder.case, "--vendor", "cpu", "--profile", folder.profile, "--data-dir", "data", "--set"]
    done = flagperf(tmp_path, *command, *changes)
    assert (done.code, words in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert not (tmp_path / "runs").exists()
