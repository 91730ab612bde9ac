from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from recorded_bundles import FOLDER, recorded_bundle

from flagperf.bundle.bundle import create_bundle, seal
from flagperf.cli import run_cli
from run_builders import make_run

RECORDED = FOLDER
RUN_ID = "20260101T000000Z-demo-cpu-1x1-abc123"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = create_bundle(tmp_path, make_run(RUN_ID), ())
    seal(path)
    (path / "run.json").unlink()
    return path


@pytest.mark.parametrize("command", [["runs", "verify"], ["runs", "show"], ["runs", "path"], ["report"]])
def test_a_folder_that_is_no_bundle_is_called_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    create_bundle(tmp_path / "runs", make_run(RUN_ID), ())
    assert run_cli([*command, str(tmp_path), "--runs-dir", str(tmp_path / "runs")]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == f"flagperf: {tmp_path} has no run.json: it is not a bundle, or it is damaged\n"


def test_verify_names_all_that_a_bundle_lost(damaged: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for word in (str(damaged), RUN_ID):
        assert run_cli(["report", word, "--runs-dir", str(damaged.parent)]) == 2
        assert f"{damaged} has no run.json: it is not a bundle, or it is damaged" in capfd.readouterr().err
        assert run_cli(["runs", "verify", word, "--runs-dir", str(damaged.parent)]) == 3
        problem, verdict = capfd.readouterr().out.splitlines()
        assert problem == "run.json is missing"
        assert verdict.startswith(f"{RUN_ID}: not verified: ")
    (damaged / "MANIFEST").unlink()
    assert run_cli(["runs", "verify", str(damaged)]) == 3
    assert capfd.readouterr().out.splitlines()[:2] == [
        "run.json is missing",
        "MANIFEST is missing: the run was never finished",
    ]


def test_a_run_in_a_folder_of_another_name_is_listed_with_its_marks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marked = recorded_bundle("simulated")
    for name in ("bundle", "copy"):
        shutil.copytree(marked, tmp_path / name)
    assert run_cli(["runs", "list", "--runs-dir", str(tmp_path), "--json"]) == 0
    lines = json.loads(capfd.readouterr().out)
    assert [line["id"] for line in lines] == [marked.name] * 2
    assert all("unsteady" in line["headline"][0]["marks"] for line in lines)
