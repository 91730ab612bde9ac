"""Whole runs on a real Slurm of four virtual nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_runs import ENDLESS, SHORT, User, losses, wait_until
from slurm import Slurm

pytest.importorskip("torch")
pytestmark = pytest.mark.run


def user_of(slurm: Slurm, folder: Path) -> User:
    return User(folder, "--cluster", "slurm", "--cluster-option", "time=5", environment=slurm.environment)


def queued_jobs(slurm: Slurm) -> list[str]:
    return slurm.ask("squeue", "--noheader", "--format=%i").split()


def assert_nothing_left(slurm: Slurm) -> None:
    wait_until(lambda: not queued_jobs(slurm))
    for node in ("n1", "n2", "n3", "n4"):
        wait_until(lambda node=node: not slurm.node(node).processes("flagperf"))  # type: ignore[misc]


def test_a_run_asks_for_nodes_and_gives_them_back(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2")
    assert code == 0, stderr
    assert len(losses(user.bundle)) == 6 and user.verify() == 0
    assert_nothing_left(slurm)


def test_a_run_inside_an_allocation_uses_its_nodes(slurm: Slurm, tmp_path: Path) -> None:
    inside = ["salloc", "--nodes=2", "--exclusive", "--time=5", sys.executable, "-m", "flagperf", "run", "distilbert"]
    done = subprocess.run(
        [*inside, *SHORT, "--nodes", "2", "--cluster", "slurm"],
        cwd=tmp_path,
        env=slurm.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert_nothing_left(slurm)


def test_a_detached_run_can_be_attached_to_and_another_be_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2", "--detach")
    assert code == 0, stderr
    (job,) = re.findall(r"^job (\d+) of cluster slurm$", user.stdout, re.MULTILINE)
    plain = User(user.folder, environment=slurm.environment)
    code, stderr = plain.runs("runs", "attach", job)
    assert code == 0 and "bundle: " in plain.stdout, stderr
    assert user.ending[0] == "succeeded" and user.verify() == 0

    other = user_of(slurm, tmp_path / "other")
    assert other.runs("run", "distilbert", *ENDLESS, "--nodes", "2", "--detach")[0] == 0
    (job,) = re.findall(r"^job (\d+) of cluster slurm$", other.stdout, re.MULTILINE)
    wait_until(lambda: any("loss" in path.read_text() for path in other.folder.glob("runs/detached/*/log")))
    plain = User(other.folder, environment=slurm.environment)
    assert plain.runs("runs", "cancel", job)[0] == 0
    assert plain.runs("runs", "attach", job)[0] == 130
    wait_until(lambda: (other.bundle / "MANIFEST").exists())
    assert other.ending[0] == "interrupted" and other.verify() == 0
    assert_nothing_left(slurm)


def test_a_job_that_is_cancelled_from_outside_ends_as_data(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    process = user.starts("run", "distilbert", *ENDLESS, "--nodes", "2")
    user.wait_for_step(process)
    wait_until(lambda: losses(user.bundle))
    (job,) = queued_jobs(slurm)
    slurm.cancel(job)
    code, stderr = user.ended(process)
    assert code == 3, stderr
    assert user.ending[0] == "failed" and "was cancelled" in user.ending[1]
    assert losses(user.bundle) and user.verify() == 0
    assert_nothing_left(slurm)


def test_a_node_that_is_taken_down_ends_the_run_and_is_named(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    process = user.starts("run", "distilbert", *ENDLESS, "--nodes", "2")
    user.wait_for_step(process)
    try:
        slurm.set_down("n2", "broken fan")
        code, stderr = user.ended(process)
    finally:
        slurm.resume("n2")
    assert code == 3, stderr
    assert user.ending[0] == "failed" and "broken fan" in user.ending[1]
    assert user.verify() == 0
    assert_nothing_left(slurm)
