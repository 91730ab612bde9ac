"""The built-in cluster `slurm` on a real Slurm, with small commands in place of the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm import Slurm

from flagperf.api import Allocation, Node
from flagperf.builtin.slurm import SlurmCluster, SlurmOptions
from flagperf.errors import BadInput

OPTIONS = SlurmOptions(time="5")
UNTIL_STDIN_ENDS = ["sh", "-c", "echo there; exec cat"]


@pytest.fixture
def cluster(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    monkeypatch.setenv("SLURM_CONF", str(slurm.configuration))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return SlurmCluster()


@pytest.fixture
def allocation(slurm: Slurm, cluster: SlurmCluster) -> Iterator[Allocation]:
    allocation = cluster.allocate(2, OPTIONS)
    yield allocation
    allocation.release()
    assert slurm.final_state(job_of(allocation)) != "RUNNING"


def started(allocation: Allocation, node: Node) -> subprocess.Popen[bytes]:
    """A step that says that it is there and reads its stdin."""
    step = subprocess.Popen(
        allocation.agent_command(node, UNTIL_STDIN_ENDS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert step.stdout and step.stdout.readline() == b"there\n"
    return step


def last_words(step: subprocess.Popen[bytes]) -> str:
    """Waits for its end, which nothing here brings about. Its exit code says little: after a node's failure it may be
    0."""
    assert step.stderr
    with step:
        step.wait(600)
        return step.stderr.read().decode()


def job_of(allocation: Allocation) -> str:
    return str(allocation.job)  # type: ignore[attr-defined]


def test_a_step_carries_every_byte_and_has_all_cores_of_its_node(allocation: Allocation) -> None:
    assert [(node.name, node.address) for node in allocation.nodes] == [("n1", "127.0.0.1"), ("n2", "127.0.0.1")]
    sent = os.urandom(300_000)
    facts = "import os, sys; print(os.uname().nodename, len(os.sched_getaffinity(0)), os.getcwd(), sys.argv[1:])"
    words = ["it's; $HOME", "a\nb!"]
    for node in allocation.nodes:
        command = allocation.agent_command(node, ["cat"])
        assert subprocess.run(command, input=sent, stdout=subprocess.PIPE, check=True, timeout=600).stdout == sent
        command = allocation.agent_command(node, [sys.executable, "-c", facts, *words])
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600).stdout
        assert said == f"{node.name} 2 / {words}\n"


def test_sigterm_ends_a_step_with_what_runs_in_it(slurm: Slurm, allocation: Allocation) -> None:
    step = started(allocation, allocation.nodes[0])
    step.terminate()
    assert "CANCELLED" in last_words(step)
    slurm.node("n1").wait_for(lambda: not slurm.node("n1").processes("cat"), "the end of the step")
    assert allocation.explain(allocation.nodes[0]) == ""


def test_a_cancelled_job_ends_its_steps_and_is_named(slurm: Slurm, allocation: Allocation) -> None:
    steps = [started(allocation, node) for node in allocation.nodes]
    slurm.cancel(job_of(allocation))
    for step in steps:
        assert "CANCELLED" in last_words(step)
    assert allocation.explain(allocation.nodes[1]) == f"Slurm's job {job_of(allocation)} was cancelled"


def test_a_node_that_is_set_down_is_named_with_the_reason(slurm: Slurm, allocation: Allocation) -> None:
    step = started(allocation, allocation.nodes[1])
    slurm.set_down("n2", "fan")
    last_words(step)
    assert allocation.explain(allocation.nodes[1]) == (
        f"Slurm's job {job_of(allocation)} ended, because one of its nodes failed; Slurm has node n2 as down (fan)"
    )
    slurm.resume("n2")


def test_inside_an_allocation_its_nodes_are_used_and_kept(
    slurm: Slurm, cluster: SlurmCluster, allocation: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job_of(allocation))
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    inner = cluster.allocate(1, OPTIONS)
    assert inner.nodes == allocation.nodes[:1]
    inner.release()
    assert slurm.job_state(job_of(allocation)) == "RUNNING"
    with pytest.raises(BadInput, match=r"3 nodes are asked for, and Slurm's job \d+ has 2: n1, n2"):
        cluster.allocate(3, OPTIONS)
    slurm.cancel(job_of(allocation))
    slurm.final_state(job_of(allocation))
    with pytest.raises(BadInput, match=r"SLURM_JOB_ID is (\d+), but Slurm's job \1 was cancelled; leave that shell"):
        cluster.allocate(1, OPTIONS)


@pytest.mark.parametrize(
    ("num_nodes", "options", "message"),
    [
        (1, {"partition": "nope"}, "[Ii]nvalid partition"),
        (1, {"time": "10:00:00"}, "would never start the job: Partition"),
        (1, {"gres": "dcu:1"}, r"Invalid generic resource \(gres\)"),
        (5, {}, "would never start the job: Partition"),
    ],
)
def test_what_slurm_cannot_give_is_refused_and_leaves_no_job(
    slurm: Slurm, cluster: SlurmCluster, num_nodes: int, options: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        cluster.allocate(num_nodes, SlurmOptions(**{"time": "5", **options}))
    with pytest.raises(BadInput, match=message):
        cluster.submit(["true"], num_nodes, SlurmOptions(**{"time": "5", **options}), "/dev/null")
    assert slurm.ask("squeue", "--noheader", "--states=PENDING,RUNNING") == ""


def test_ctrl_c_in_the_queue_takes_the_job_back(slurm: Slurm, cluster: SlurmCluster, allocation: Allocation) -> None:
    """All nodes are taken, by the allocation and by those who wait."""
    with waiting_command(slurm) as waiting:
        waiting.send_signal(signal.SIGINT)
    no_job_but(slurm, job_of(allocation))


def test_a_killed_command_leaves_neither_a_queued_job_nor_nodes(slurm: Slurm, cluster: SlurmCluster) -> None:
    code = f"{ALLOCATE.format(num_nodes=1)}; print(had.job, flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        job = holder.stdout.readline().strip()
        assert slurm.job_state(job) == "RUNNING"
        with waiting_command(slurm) as waiting:
            waiting.kill()
        no_job_but(slurm, job)
        holder.kill()
    no_job_but(slurm)


ALLOCATE = (
    "import time; from flagperf.builtin.slurm import *; "
    "had = SlurmCluster().allocate({num_nodes}, SlurmOptions(time='5'))"
)


def waiting_command(slurm: Slurm) -> subprocess.Popen[bytes]:
    """It says in its stderr what it waits for."""
    code = ALLOCATE.format(num_nodes=4)
    waiting = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, env=slurm.environment)
    assert waiting.stderr and b"is in the queue (PENDING, " in waiting.stderr.readline()
    return waiting


def no_job_but(slurm: Slurm, *jobs: str) -> None:
    eventually(slurm, lambda: slurm.ask("squeue", "--noheader", "--states=PD,R,CG", "--format=%A").split() == [*jobs])


def eventually(slurm: Slurm, happened: Callable[[], bool]) -> None:
    slurm.node("n1").wait_for(happened, "what the test waits for")


def test_a_submitted_command_has_its_words_its_nodes_and_its_log(
    slurm: Slurm, cluster: SlurmCluster, tmp_path: Path
) -> None:
    code = f"import os, sys; {ALLOCATE.format(num_nodes=2)}; print([node.name for node in had.nodes], sys.argv[1:])"
    words = ["it's; $HOME", "#SBATCH --nodes=4\n#SBATCH", "a!b\\"]
    log = tmp_path / "100%j.log"
    job = cluster.submit([sys.executable, "-c", code, *words], 2, OPTIONS, str(log))
    assert slurm.final_state(job) == "COMPLETED", log.read_text()
    assert log.read_text() == f"['n1', 'n2'] {words}\n"
    assert cluster.job_state(job).reason == f"Slurm's job {job} has ended"


def test_a_submitted_job_can_be_watched_and_cancelled(slurm: Slurm, cluster: SlurmCluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit('told')); print(flush=True); time.sleep(1000)"
    )
    job = cluster.submit([sys.executable, "-c", code], 1, OPTIONS, str(log))
    eventually(slurm, lambda: log.exists() and bool(log.read_text()))
    assert cluster.job_state(job).phase == "running"
    second = cluster.submit(["true"], 4, OPTIONS, str(log))
    eventually(slurm, lambda: "Resources" in cluster.job_state(second).reason)
    assert cluster.job_state(second).phase == "queued"
    for each in (second, job):
        cluster.cancel(each)
        assert slurm.final_state(each) == "CANCELLED"
        assert cluster.job_state(each).phase == "ended"
    assert "told" in log.read_text()
    assert cluster.job_state("999999").phase == "unknown"
    with pytest.raises(BadInput, match="there is nothing to cancel: Slurm knows no job 999999"):
        cluster.cancel("999999")
