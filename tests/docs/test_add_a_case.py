"""docs/add-a-case.md does what it says: its files are written, installed and run as they stand there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page_reader import DOCS, Reader, commands

NAME = "add-a-case.md"
PAGE = (DOCS / NAME).read_text(encoding="utf-8")
COMMANDS = commands(NAME)
LOOK_ALIKES = ("json", "torch", "accelerate", "flagperf", "my_cases")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Has the page's package, installed into `site`, and a folder of data."""
    reader = Reader(tmp_path_factory.mktemp("add-a-case"))
    reader.writes_the_files(NAME)
    (reader.folder / "my-cases/my_cases/points/__init__.py").touch()
    reader.types_all(COMMANDS[:1])
    (reader.folder / "data").mkdir()
    (reader.folder / "data" / "points.tsv").write_text("0.5\t0.9\t1\n0.5\t-0.9\t0\n")
    return reader


@pytest.mark.parametrize("command", [command for command in COMMANDS[1:] if " run " not in command])
def test_the_commands_answer(reader: Reader, tmp_path: Path, command: str) -> None:
    done = reader.types(command.replace("DIR", str(reader.folder / "data")), tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, []), done.stderr
    assert "points" in done.stdout


@pytest.mark.run
def test_the_case_runs_to_its_target_whatever_the_current_folder_holds(reader: Reader, tmp_path: Path) -> None:
    for name in LOOK_ALIKES:  # of libraries, none of which any process may import
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the current folder was imported')")
    (command,) = [command for command in COMMANDS if " run " in command]
    done = reader.types(f"{command} --json", tmp_path)
    assert done.returncode == 0, done.stderr
    (bundle,) = (tmp_path / "runs").iterdir()
    metrics = {metric["name"]: metric for metric in json.loads((bundle / "run.json").read_text())["metrics"]}
    assert metrics["target"]["value"] == 1
    assert metrics["p_core"]["value"] > 0


def test_bad_data_is_named_before_anything_starts(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "points.tsv").write_text("0.5\t0.9\t1\n0.5\t0.9\tleft\n")
    done = reader.types(f"flagperf plan points --profile standard --data-dir {tmp_path}", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}/points.tsv line 2: " in done.stderr and "is not a point; write x, y" in done.stderr
