"""docs/add-a-case.md does what it says: its files are written, installed and run as they stand there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.kit import module_command
from flagperf.spec import vocabulary

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-case.md").read_text(encoding="utf-8")
LOOK_ALIKES = ("json", "torch", "accelerate", "flagperf", "my_cases")


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in fenced("sh") for line in block.splitlines()]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, installed into `site`."""
    folder = tmp_path_factory.mktemp("add-a-case")
    for block in [*fenced("toml"), *fenced("python")]:
        first, _, content = block.partition("\n")
        path = folder / first.removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (folder / "my-cases/my_cases/points/__init__.py").touch()
    install = [sys.executable, "-m", "pip", "install", "--isolated", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder / "site")]
    subprocess.run([*install, *offline, str(folder / "my-cases")], check=True)
    (folder / "data").mkdir()
    (folder / "data" / "points.tsv").write_text("0.5\t0.9\t1\n0.5\t-0.9\t0\n")
    return folder


def flagperf(work: Path, command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    arguments = command.replace("DIR", str(work / "data")).split()[1:]
    environ = {**os.environ, "PYTHONPATH": str(work / "site"), "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(
        [*module_command(sys.executable, "flagperf"), *arguments],
        cwd=cwd, env=environ, capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip


def test_the_page_names_the_commands_that_are_tried_here() -> None:
    assert commands()[0] == "pip install -e my-cases"
    assert [command.split()[1] for command in commands()[1:]] == ["cases", "cases", "plan", "run", "plan"]


@pytest.mark.parametrize("command", [command for command in commands()[1:] if " run " not in command])
def test_the_commands_answer(work: Path, tmp_path: Path, command: str) -> None:
    done = flagperf(work, command, tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, []), done.stderr
    assert "points" in done.stdout


@pytest.mark.run
def test_the_case_runs_to_its_target_whatever_the_current_folder_holds(work: Path, tmp_path: Path) -> None:
    for name in LOOK_ALIKES:  # of libraries, none of which any process may import
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the current folder was imported')")
    (command,) = [command for command in commands() if " run " in command]
    done = flagperf(work, f"{command} --json", tmp_path)
    assert done.returncode == 0, done.stderr
    (bundle,) = (tmp_path / "runs").iterdir()
    metrics = {metric["name"]: metric for metric in json.loads((bundle / "run.json").read_text())["metrics"]}
    assert metrics["target"]["value"] == 1
    assert metrics["p_core"]["value"] > 0


def test_bad_data_is_named_before_anything_starts(work: Path, tmp_path: Path) -> None:
    (tmp_path / "points.tsv").write_text("0.5\t0.9\t1\n0.5\t0.9\tleft\n")
    done = flagperf(work, f"flagperf plan points --profile standard --data-dir {tmp_path}", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}/points.tsv line 2: " in done.stderr and "is not a point; write x, y" in done.stderr


@pytest.mark.parametrize(
    ("kind", "names"), [("Page columns", vocabulary.PAGE_COLUMNS), ("Page rows", vocabulary.PAGE_ROWS)]
)
def test_all_names_of_the_page_are_listed(kind: str, names: tuple[str, ...]) -> None:
    (listed,) = re.findall(rf"{kind}: (.*?)\.(?: |\n\n)", PAGE, flags=re.DOTALL)
    assert set(re.findall(r"`([^`]+)`", listed)) == set(names)
