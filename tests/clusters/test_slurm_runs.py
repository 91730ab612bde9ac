"""Whole runs on a real Slurm of four virtual nodes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_runs import ENDLESS, SHORT, User, losses, told_seconds, wait_until
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


def detached_job(user: User) -> str:
    (job,) = re.findall(r"^job (\d+) of cluster slurm$", user.stdout, re.MULTILINE)
    return str(job)


def log_of(user: User) -> str:
    return "".join(path.read_text() for path in user.folder.glob("runs/detached/*/log"))


def detached_endless(slurm: Slurm, folder: Path, *nodes: str) -> tuple[User, str]:
    """A run in the queue that is at work."""
    user = user_of(slurm, folder)
    on_nodes = ("--cluster-option", f"nodelist={','.join(nodes)}")
    assert user.runs("run", "distilbert", *ENDLESS, "--nodes", "2", "--detach", *on_nodes)[0] == 0, user.stderr
    wait_until(lambda: "loss" in log_of(user) and losses(user.bundle))
    return user, detached_job(user)


def assert_failed(user: User, *words: str) -> None:
    wait_until((user.bundle / "MANIFEST").exists)
    status, reason = user.ending
    assert status == "failed" and all(word in reason for word in words), reason
    assert losses(user.bundle) and user.verify() == 0


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


def test_a_detached_group_is_one_job(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    code, stderr = user.runs("run", "distilbert", *SHORT, "--repeat", "2", "--nodes", "2", "--detach")
    assert code == 0, stderr
    plain = User(user.folder, environment=slurm.environment)
    code, stderr = plain.runs("runs", "attach", detached_job(user))
    assert code == 0 and "2 of 2 runs with results" in plain.stdout, stderr
    assert len([*(user.folder / "runs").glob("*-distilbert-cpu-2x1-*/MANIFEST")]) == 2
    assert_nothing_left(slurm)


def test_a_detached_run_can_be_attached_to_and_another_be_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    code, stderr = user.runs("run", "distilbert", *SHORT, "--nodes", "2", "--detach")
    assert code == 0, stderr
    plain = User(user.folder, environment=slurm.environment)
    code, stderr = plain.runs("runs", "attach", detached_job(user))
    assert code == 0 and "bundle: " in plain.stdout, stderr
    assert user.ending[0] == "succeeded" and user.verify() == 0

    other, job = detached_endless(slurm, tmp_path / "other", "n1", "n2")
    plain = User(other.folder, environment=slurm.environment)
    assert plain.runs("runs", "cancel", job)[0] == 0
    assert plain.runs("runs", "attach", job)[0] == 130
    wait_until((other.bundle / "MANIFEST").exists)
    assert other.ending[0] == "interrupted" and other.verify() == 0
    assert_nothing_left(slurm)


def test_a_time_limit_a_requeue_and_a_preemption_end_as_data(slurm: Slurm, tmp_path: Path) -> None:
    """At the same time: the controller looks at time limits every 30 s only."""
    limited, job = detached_endless(slurm, tmp_path / "limited", "n1", "n2")
    slurm.ask("scontrol", "update", f"JobId={job}", "EndTime=now")

    requeued, again = detached_endless(slurm, tmp_path / "requeued", "n3", "n4")
    with pytest.raises(RuntimeError, match="disabled"):
        slurm.ask("scontrol", "requeue", again)
    slurm.ask("scontrol", "update", f"JobId={again}", "Requeue=1")  # as an operator can
    slurm.ask("scontrol", "requeue", again)
    assert_failed(requeued, f"stopped by SIGTERM: Slurm's job {again} was put back into the queue")
    wait_until(lambda: slurm.job_state(again) == "PENDING")
    slurm.ask("scontrol", "update", f"JobId={again}", "StartTime=now")  # else Slurm lets two minutes pass
    assert slurm.final_state(again) == "FAILED"
    assert "it is not started again" in log_of(requeued) and "loss" in log_of(requeued)
    assert requeued.bundle  # the only one
    assert User(requeued.folder, environment=slurm.environment).runs("runs", "attach", again)[0] == 3

    preempted = user_of(slurm, tmp_path / "preempted")
    process = preempted.starts("run", "distilbert", *ENDLESS, "--nodes", "2", "--cluster-option", "nodelist=n3,n4")
    preempted.wait_for_step(process)
    wait_until(lambda: losses(preempted.bundle))
    with told_seconds("preempted"):
        slurm.ask("srun", "--partition=urgent", "--nodelist=n3,n4", "--nodes=2", "true")
        assert preempted.ended(process)[0] == 3, preempted.stderr
    assert_failed(preempted, "node 0 (n3)", "was preempted by another job")

    assert User(limited.folder, environment=slurm.environment).runs("runs", "attach", job)[0] == 3
    assert_failed(limited, f"Slurm's job {job} reached its time limit of ")
    assert_nothing_left(slurm)


def test_a_job_that_is_cancelled_from_outside_ends_as_data(slurm: Slurm, tmp_path: Path) -> None:
    user = user_of(slurm, tmp_path / "user")
    process = user.starts("run", "distilbert", *ENDLESS, "--nodes", "2")
    user.wait_for_step(process)
    wait_until(lambda: losses(user.bundle))
    (job,) = queued_jobs(slurm)
    slurm.cancel(job)
    with told_seconds("cancelled"):
        code, stderr = user.ended(process)
    assert code == 3, stderr
    assert user.ending[0] == "failed" and "was cancelled" in user.ending[1]
    assert losses(user.bundle) and user.verify() == 0
    assert_nothing_left(slurm)


def test_a_node_that_is_taken_down_ends_the_run_and_is_named(slurm: Slurm, tmp_path: Path) -> None:
    """Meanwhile another one fails, where the command of a detached run is: Slurm notices that only after a while."""
    detached, job = detached_endless(slurm, tmp_path / "detached", "n3", "n4")
    num_steps = len(losses(detached.bundle, rank=1))
    slurm.fail("n3")
    try:
        with told_seconds("the command's own node failed"):
            run_until_n2_is_down(slurm, tmp_path / "user")
            attached = [
                User(detached.folder, environment=slurm.environment).starts("runs", "attach", job) for _ in "ab"
            ]
            assert [process.wait(600) for process in attached] == [3, 3]
    finally:
        slurm.resume("n3")
    assert_failed(detached, "the command of the run", "on n3", f"Slurm's job {job} ended", "Slurm has node n3 as down")
    assert len(losses(detached.bundle, rank=1)) >= num_steps
    assert_nothing_left(slurm)


def run_until_n2_is_down(slurm: Slurm, folder: Path) -> None:
    user = user_of(slurm, folder)
    process = user.starts("run", "distilbert", *ENDLESS, "--nodes", "2", "--cluster-option", "nodelist=n1,n2")
    user.wait_for_step(process)
    try:
        slurm.set_down("n2", "broken fan")
        with told_seconds("a node taken down"):
            code, stderr = user.ended(process)
    finally:
        slurm.resume("n2")
    assert code == 3, stderr
    assert user.ending[0] == "failed" and "broken fan" in user.ending[1]
    assert user.verify() == 0
