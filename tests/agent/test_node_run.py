"""A node's share of a run: what workers inherit, what is sent while they run, and which rank is to blame."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from flagperf.agent import node_run
from flagperf.agent.node_run import as_out_of_memory, find_failure, worker_environment
from flagperf.api import LaunchCommand, Launcher, Machine, NodeShare, RankFailure
from flagperf.bundle.paths import FOLDERS, rank_events
from flagperf.errors import NodeFailed
from flagperf.event_files import EventWriter
from flagperf.events import WorkerEnded
from flagperf.messages import message
from flagperf.spec.protocol import AgentMessage, Failure, Progress, WorkOrder, work_orders
from run_builders import minimal_job


class StandInLauncher(Launcher):
    vendor = "acme"
    name = "stand-in"

    def __init__(self, script: str = "", listed: tuple[RankFailure, ...] = ()) -> None:
        self.script, self.listed = script, listed

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        return LaunchCommand(())

    def env_script(self, machine: Machine) -> str | None:
        return self.script

    def explain_failures(self, log: str) -> list[RankFailure]:
        return list(self.listed)


# --- what workers inherit ---------------------------------------------------------------------------------------------


def sourced(folder: Path, text: str) -> dict[str, str]:
    script = folder / "set env.sh"
    script.write_text(text)
    return worker_environment(StandInLauncher(str(script)), Machine())


def test_the_vendors_script_is_sourced_and_its_variables_taken_over(tmp_path: Path) -> None:
    environment = sourced(tmp_path, 'echo noise\nexport ACME_HOME="/opt/acme one\ntwo"\n')
    assert environment["ACME_HOME"] == "/opt/acme one\ntwo"
    assert environment["PATH"] == os.environ["PATH"]
    last_is_false = sourced(tmp_path, "export ACME_HOME=/opt/acme\n[ -d /no/such/folder ] && export ACME_MORE=1\n")
    assert last_is_false["ACME_HOME"] == "/opt/acme" and "ACME_MORE" not in last_is_false


@pytest.mark.parametrize("text", ["return 3\n", "exit 0\n", "export ACME_HOME=/opt/acme\nexit 3\n", "if\n"])
def test_a_failing_script_is_not_passed_over(tmp_path: Path, text: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        sourced(tmp_path, text)


def test_an_interface_that_the_node_has_not_is_named_before_workers_start() -> None:
    (order,) = work_orders(minimal_job(), interface="nope0")
    assert node_run._interface(order) == ""  # one node needs none
    with pytest.raises(NodeFailed, match="no interface 'nope0' with an address; there are "):
        node_run._interface(msgspec.structs.replace(order, num_nodes=2))


# --- what is sent -----------------------------------------------------------------------------------------------------

WORKER = """
import sys
for step in range(1, 11):
    with open(sys.argv[1], "a") as file:
        file.write('{"type":"step_finished","t_ns":%d,"step":%d,"began_ns":0,"compute_ns":1,"wait_ns":0,"work":{}}\\n' % (step, step))
    sys.stdin.readline()
"""  # noqa: E501


class NoProbe:
    def poll(self) -> None:
        pass


class Heard(io.BytesIO):
    """The worker takes its next step once somebody has heard of the last one."""

    def __init__(self, worker: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._worker = worker

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._worker.stdin.fileno(), b"\n")  # type: ignore[union-attr]


@pytest.mark.parametrize("seconds", [300.0, 0.0])
def test_progress_is_sent_once_in_a_while_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(node_run, "PROGRESS_SECONDS", seconds)
    monkeypatch.setattr(node_run, "POLL_SECONDS", 0.02)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    order = WorkOrder(minimal_job(), 0, 1, 0, 1, str(tmp_path))
    command = [sys.executable, "-c", WORKER, str(tmp_path / rank_events(0))]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        sent = Heard(worker)
        if seconds:
            for _ in range(10):  # it waits for nobody
                sent.flush()
        node_run._follow(order, worker, NoProbe(), None, threading.Event(), sent)  # type: ignore[arg-type]
    messages = [msgspec.json.decode(line, type=AgentMessage) for line in sent.getvalue().splitlines()]
    steps = [message.step for message in messages if isinstance(message, Progress)]
    if seconds:
        assert steps[-1] == 10 and len(steps) <= 2
    else:
        assert steps == list(range(1, 11))


# --- who is to blame --------------------------------------------------------------------------------------------------

KILLED = RankFailure(1, "killed by SIGKILL")
STOPPED = RankFailure(0, "killed by SIGTERM", was_stopped=True)
CODE_1 = tuple(RankFailure(rank, "exit code 1") for rank in range(3))
COMPLAINT = WorkerEnded(5, "failed", "RuntimeError: connection reset by peer")
DONE = WorkerEnded(5, "succeeded")
LAUNCHED = LaunchCommand(("launch", "--workers=2", "-m", "flagperf.worker"))
DIRECT = LaunchCommand(("/venv/bin/python", "-m", "flagperf.worker"))


def failure(
    folder: Path,
    ends: dict[int, WorkerEnded],
    listed: tuple[RankFailure, ...] = (),
    num_ranks: int = 2,
    returncode: int = 1,
    command: LaunchCommand = LAUNCHED,
) -> Failure | None:
    job = minimal_job()
    node = msgspec.structs.replace(job.nodes[0], devices=job.nodes[0].devices[:1] * num_ranks)
    (order,) = work_orders(msgspec.structs.replace(job, nodes=(node,)))
    for name in FOLDERS:
        (folder / name).mkdir()
    for rank, end in ends.items():
        with EventWriter(folder / rank_events(rank)) as writer:
            writer.write(end)
    (folder / "logs" / "node-000.log").write_text("first line\nlast line\n")
    return find_failure(order, folder, StandInLauncher(listed=listed), command, returncode)


@pytest.mark.parametrize(
    ("ends", "listed", "status", "reason", "died"),
    [
        ({0: COMPLAINT}, (KILLED,), "failed", "rank 1: killed by SIGKILL; see logs/rank-00001.log", True),
        ({0: COMPLAINT}, (CODE_1[0], KILLED), "failed", "rank 1: killed by SIGKILL; see logs/rank-00001.log", True),
        # a rank that the launcher stopped is not the cause, unless nobody says more
        ({1: COMPLAINT}, (STOPPED, CODE_1[1]), "failed", f"rank 1: {COMPLAINT.reason}; see logs/rank-00001.log", False),
        ({1: DONE}, (STOPPED,), "failed", "rank 0: killed by SIGTERM; see logs/rank-00000.log", True),
        # rank 1 ended with 0 before its case did
        (
            {0: COMPLAINT},
            (CODE_1[0],),
            "failed",
            "rank 1: exited before its case finished; see logs/rank-00001.log",
            True,
        ),
        (
            {0: WorkerEnded(9, "failed", "late"), 1: WorkerEnded(5, "out_of_memory", "early")},
            CODE_1[:2],
            "out_of_memory",
            "rank 1: early; see logs/rank-00001.log",
            False,
        ),
        ({}, (), "failed", "the launcher ended with 1: last line; see logs/node-000.log", False),
    ],
)
def test_the_rank_that_caused_a_failure_is_named_in_its_words(
    tmp_path: Path, ends: dict[int, WorkerEnded], listed: tuple[RankFailure, ...], status: str, reason: str, died: bool
) -> None:
    found = failure(tmp_path, ends, listed)
    assert found is not None and (found.status, str(found.reason), found.died) == (status, reason, died)


def test_of_a_killed_a_stopped_and_a_complaining_rank_the_killed_one_is_named(tmp_path: Path) -> None:
    found = failure(tmp_path, {2: COMPLAINT}, (STOPPED, KILLED, CODE_1[2]), num_ranks=3)
    assert found is not None and str(found.reason).startswith("rank 1: killed by SIGKILL")


def test_ranks_that_all_succeeded_have_no_failure_and_one_that_left_early_has(tmp_path: Path) -> None:
    for name in ("all", "one"):
        (tmp_path / name).mkdir()
    assert failure(tmp_path / "all", dict.fromkeys((0, 1), DONE), returncode=0) is None
    found = failure(tmp_path / "one", {0: DONE}, returncode=0)
    assert found is not None and str(found.reason).startswith("rank 1: exited before its case finished")


@pytest.mark.parametrize(
    ("ends", "returncode", "words", "died"),
    [
        ({}, -9, "killed by SIGKILL, often because the machine ran out of memory", True),
        ({}, -11, "killed by SIGSEGV", True),
        ({}, 7, "exit code 7", True),
        ({}, 0, "exited before its case finished", True),
        ({0: COMPLAINT}, 1, COMPLAINT.reason, False),
    ],
)
def test_the_return_code_of_a_worker_without_a_launcher_is_the_ranks(
    tmp_path: Path, ends: dict[int, WorkerEnded], returncode: int, words: str, died: bool
) -> None:
    found = failure(tmp_path, ends, num_ranks=1, returncode=returncode, command=DIRECT)
    assert found is not None and found.died is died
    assert str(found.reason) == f"rank 0: {words}; see logs/rank-00000.log"


@pytest.mark.parametrize(
    ("found", "returncode", "status"),
    [
        (Failure("failed", message("exit.sigkill"), died=True), 1, "out_of_memory"),
        (Failure("failed", message("exit.code", code=-9)), -signal.SIGKILL, "out_of_memory"),
        (Failure("failed", message("tool.words", words="ValueError: a bug of the case")), 1, "failed"),
    ],
)
def test_what_died_while_the_kernel_killed_for_lack_of_memory_ran_out_of_it(
    found: Failure, returncode: int, status: str
) -> None:
    assert as_out_of_memory(found, returncode).status == status
