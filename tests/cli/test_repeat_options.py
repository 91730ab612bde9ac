"""`run --repeat` and `--interleave-with`, as far as nothing is run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_builders import changed, recorded

from flagperf.bundle.run_record import Ending, RecordedRun, RunGroup
from flagperf.cli import run_cli
from flagperf.cli.run import next_command, worst_exit_code

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_dry_run_says_how_often(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["run", "distilbert", "--vendor", "cpu", "--repeat", "3", "--dry-run"]) == 0
    assert "3 runs of this plan" in capfd.readouterr().err


def test_a_queue_gets_the_whole_command(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What Slurm would start is written down by an sbatch of our own."""
    tools = empty_folder / "tools"
    tools.mkdir()
    for name, script in {
        "sbatch": f'for last; do :; done; cp "$last" {tools}/script; echo 7',
        "squeue": "echo",
        "srun": ":",
        "scontrol": "exit 1",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    options = ["--cluster", "slurm", "--repeat", "3", "--interleave-with", "training.seed=1"]
    assert run_cli(["run", "distilbert", "--detach", *options]) == 0, capfd.readouterr().err
    script = (tools / "script").read_text()
    assert "--repeat 3 --interleave-with training.seed=1 --runs-dir" in script and "--detached-in" in script


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["succeeded", "succeeded"], 0),
        (["succeeded", "target_missed"], 7),
        (["target_missed", "failed", "out_of_memory"], 3),
        (["failed", "interrupted"], 130),
    ],
)
def test_the_exit_code_is_that_of_the_worst(statuses: list[str], code: int) -> None:
    runs: list[RecordedRun] = [recorded(ending=Ending(status, "")) for status in statuses]  # type: ignore[arg-type]
    assert worst_exit_code(runs) == code


@pytest.mark.parametrize(
    ("endings", "command"),
    [
        ({"A": "succeeded", "B": "succeeded"}, "compare group-1"),
        ({"A": "succeeded", "B": "failed"}, "runs show run-B"),
        ({"A": "interrupted"}, "runs show run-A"),
        ({"": "succeeded"}, "compare group-1 OTHER"),
        ({"": "failed"}, "runs show run-"),
    ],
)
def test_the_next_command_is_one_that_works(endings: dict[str, str], command: str) -> None:
    done = [
        changed(one, run=changed(one.run, group=RunGroup("group-1", 1, 2, arm)))
        for arm, status in endings.items()
        for one in [recorded(f"run-{arm}", ending=Ending(status, ""))]  # type: ignore[arg-type]
    ]
    assert next_command(done, None) == command.split()
