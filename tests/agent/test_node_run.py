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
from flagperf.agent.node_run import as_out_of_memory, find_failure, interface_of, worker_environment
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
    assert interface_of(order) == ""  # one node needs none
    with pytest.raises(NodeFailed, match="no interface 'nope0' with an address; there are "):
        interface_of(msgspec.structs.replace(order, num_nodes=2))


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


@pytest.mark.parametrize("waits_for_progress", [False, True])
def test_progress_is_sent_once_in_a_while_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits_for_progress: bool
) -> None:
    monkeypatch.setattr(node_run, "PROGRESS_SECONDS", 0.0 if waits_for_progress else 3600.0)
    monkeypatch.setattr(node_run, "POLL_SECONDS", 0.02)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    order = WorkOrder(minimal_job(), 0, 1, 0, 1, str(tmp_path))
    command = [sys.executable, "-c", WORKER, str(tmp_path / rank_events(0))]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        sent = Heard(worker)
        for _ in range(0 if waits_for_progress else 10):
            sent.flush()
        node_run._follow(order, worker, NoProbe(), None, threading.Event(), sent)  # type: ignore[arg-type]
    messages = [msgspec.json.decode(line, type=AgentMessage) for line in sent.getvalue().splitlines()]
    steps = [message.step for message in messages if isinstance(message, Progress)]
    assert steps == list(range(1, 11)) if waits_for_progress else steps[-1] == 10 and len(steps) <= 2


# --- who is to blame --------------------------------------------------------------------------------------------------

KILLED = RankFailure(1, "killed by SIGKILL")
STOPPED = RankFailure(0, "killed by SIGTERM", was_stopped=True)
CODE_1 = tuple(RankFailure(rank, "exit code 1") for rank in range(3))
COMPLAINT = WorkerEnded(5, "failed", "RuntimeError: connection reset by peer")
DONE = WorkerEnded(5, "succeeded")
EARLY, LATE = WorkerEnded(5, "out_of_memory", "early"), WorkerEnded(9, "failed", "late")
LAUNCHED = LaunchCommand(("launch", "--workers=2", "-m", "flagperf.worker"))
DIRECT = LaunchCommand(("/venv/bin/python", "-m", "flagperf.worker"))
LEFT = "exited before its case finished"


@pytest.mark.parametrize(
    ("num_ranks", "returncode", "ends", "listed", "status", "reason", "died"),
    [
        (2, 0, {0: DONE, 1: DONE}, (), None, "", False),
        (2, 1, {0: COMPLAINT}, (CODE_1[0], KILLED), "failed", "rank 1: killed by SIGKILL", True),
        (3, 1, {2: COMPLAINT}, (STOPPED, KILLED, CODE_1[2]), "failed", "rank 1: killed by SIGKILL", True),
        # a rank that the launcher stopped is not the cause, unless nobody says more
        (2, 1, {1: COMPLAINT}, (STOPPED, CODE_1[1]), "failed", f"rank 1: {COMPLAINT.reason}", False),
        (2, 1, {1: DONE}, (STOPPED,), "failed", "rank 0: killed by SIGTERM", True),
        # rank 1 ended with 0 before its case did
        (2, 1, {0: COMPLAINT}, (CODE_1[0],), "failed", f"rank 1: {LEFT}", True),
        (2, 0, {0: DONE}, (), "failed", f"rank 1: {LEFT}", True),
        (2, 1, {0: LATE, 1: EARLY}, CODE_1[:2], "out_of_memory", "rank 1: early", False),
        (2, 1, {}, (), "failed", "the launcher ended with 1: last line", False),
        # a worker without a launcher, whose return code is the rank's
        (1, -9, {}, (), "failed", "rank 0: killed by SIGKILL, often because the machine ran out of memory", True),
        (1, -11, {}, (), "failed", "rank 0: killed by SIGSEGV", True),
        (1, 7, {}, (), "failed", "rank 0: exit code 7", True),
        (1, 0, {}, (), "failed", f"rank 0: {LEFT}", True),
        (1, 1, {0: COMPLAINT}, (), "failed", f"rank 0: {COMPLAINT.reason}", False),
    ],
)
def test_the_rank_that_caused_a_failure_is_named_in_its_words(
    tmp_path: Path, num_ranks: int, returncode: int, ends: dict[int, WorkerEnded], listed: tuple[RankFailure, ...],
    status: str | None, reason: str, died: bool,
) -> None:  # fmt: skip
    job = minimal_job()
    node = msgspec.structs.replace(job.nodes[0], devices=job.nodes[0].devices[:1] * num_ranks)
    (order,) = work_orders(msgspec.structs.replace(job, nodes=(node,)))
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    for rank, end in ends.items():
        with EventWriter(tmp_path / rank_events(rank)) as writer:
            writer.write(end)
    (tmp_path / "logs" / "node-000.log").write_text("first line\nlast line\n")
    command = DIRECT if num_ranks == 1 else LAUNCHED
    found = find_failure(order, tmp_path, StandInLauncher(listed=listed), command, returncode)
    if status is None:
        assert found is None
    else:
        assert found is not None
        log = f"rank-0000{reason[5]}" if reason.startswith("rank") else "node-000"
        assert (found.status, str(found.reason), found.died) == (status, f"{reason}; see logs/{log}.log", died)


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
