"""Places that a user names: a folder where a file is needed, a file where a folder is, what does not exist or cannot be
written to. All commands give the same exit code for the same mistake."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from page_builders import CLEAN_ROW, result_text
from recorded_bundles import recorded_bundle

from flagperf.cli import run_cli

RUN = recorded_bundle("distilbert")
READING = [
    "runs list", "runs show latest", "runs verify latest", "runs curve latest", "runs watch", "runs rm latest --yes",
    "runs pack latest", "runs redact latest --out {free}", "report latest", "align latest latest",
    "compare latest latest", "export csv", "export mlflow --tracking-uri http://127.0.0.1:9", "site {free}",
]  # fmt: skip
CREATING = ["runs unpack {archive}", "import {page}", "run distilbert --vendor cpu"]
WRITING = [
    "report {run} --format md --out", "export csv {run} --out", "export jsonl {run} --curves --out",
    "runs pack {run} -o",
]  # fmt: skip
FOLDERS = ["runs redact {run} --out PLACE", "site PLACE {run}", "vendors new acme --folder PLACE"]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLAGPERF_RUNS_DIR", raising=False)
    names = ("file", "folder", "archive.tar.gz", "page.md")
    file, folder, archive, page = (tmp_path / name for name in names)
    file.write_text("")
    folder.mkdir()
    page.write_text(result_text(CLEAN_ROW))
    assert run_cli(["runs", "pack", str(RUN), "-o", str(archive)]) == 0
    return {"file": file, "folder": folder, "archive": archive, "page": page, "run": RUN, "free": tmp_path / "free"}


def said(command: str, places: dict[str, Path], capfd: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one line of a refusal that leaves nothing."""
    capfd.readouterr()
    folder = places["file"].parent
    before = sorted(folder.rglob("*"))
    assert run_cli([word.format(**places) for word in command.split()]) == code
    printed = capfd.readouterr()
    assert printed.out == ""
    assert sorted(folder.rglob("*")) == before
    (line,) = printed.err.splitlines()
    assert line.startswith("flagperf: ")
    return line


@pytest.mark.parametrize("command", [*READING, *CREATING])
def test_a_runs_dir_that_is_a_file(command: str, places: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    line = said(f"{command} --runs-dir {{file}}", places, capfd)
    assert str(places["file"]) in line
    assert "not a directory" in line.lower()


@pytest.mark.parametrize("command", READING)
def test_a_runs_dir_to_be_read_that_does_not_exist(
    command: str, places: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert str(places["free"]) in said(f"{command} --runs-dir {{free}}", places, capfd)


def test_the_default_folder_need_not_exist(places: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["runs", "list"]) == 0
    assert "no runs in runs" in capfd.readouterr().err


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("place", ["{folder}", "{file}/below.tar.gz", "{free}/below.tar.gz", "/proc/below.tar.gz"])
def test_a_file_that_cannot_be_written(
    command: str, place: str, places: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    line = said(f"{command} {place}", places, capfd)
    assert place.format(**places) in line
    assert "compress" not in line


@pytest.mark.parametrize("command", FOLDERS)
@pytest.mark.parametrize("place", ["{file}", "{file}/below", "/proc/below/it"])
def test_a_folder_that_cannot_be_made(
    command: str, place: str, places: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    line = said(command.replace("PLACE", place), places, capfd)
    assert "/proc/below" in line or str(places["file"]) in line


@pytest.mark.parametrize("command", [*(f"{each} {{free}}.tar.gz" for each in WRITING), *CREATING[:2]])
def test_a_disk_that_is_full_is_no_bad_input(
    command: str, places: dict[str, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full_disk)
    monkeypatch.setattr(shutil, "copyfileobj", full_disk)
    monkeypatch.setattr(Path, "rename", full_disk)
    into = " --runs-dir {free}" if command in CREATING else ""
    assert "No space left on device" in said(command + into, places, capfd, code=3)
