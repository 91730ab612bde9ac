"""Runs in a cluster's queue, as far as they need no queue. With a real one: tests/clusters/test_slurm_runs.py."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from flagperf.cli import run_cli
from flagperf.cli.detached import arguments
from flagperf.spec import RunSpec


def test_the_command_line_of_a_request_says_all_that_differs_from_the_defaults() -> None:
    spec = RunSpec(
        "distilbert",
        vendor="cpu",
        nodes=2,
        set=("training.max_steps=3", "training.warmup_steps=1"),
        timeout_seconds=60.0,
        accept_low_peaks=True,
        cluster="slurm",
        cluster_options=("time=5",),
        container_options=("python=/venv/bin/python",),
    )
    words = "distilbert --vendor cpu --nodes 2 --set training.max_steps=3 --set training.warmup_steps=1 --timeout 60.0"
    rest = "--accept-low-peaks --cluster slurm --cluster-option time=5 --container-option python=/venv/bin/python"
    assert arguments(spec) == [*words.split(), *rest.split()]
    assert arguments(RunSpec("glm")) == ["glm"]
    assert {field.name for field in msgspec.structs.fields(RunSpec)} >= {"container", "interface"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run distilbert --detach", "cluster local has no queue"),
        ("runs attach 5", "no detached run '5'"),
        ("runs cancel 5", "no detached run '5'"),
    ],
)
def test_what_cannot_be_detached_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(command.split()) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
