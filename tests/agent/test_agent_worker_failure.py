"""Several ranks of one node; which of them is to blame, and in whose words."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest

from flagperf.agent.node_run import as_out_of_memory, find_failure
from flagperf.api import LaunchCommand, Launcher, NodeShare, RankFailure
from flagperf.event_files import EventWriter
from flagperf.events import WorkerEnded
from flagperf.messages import message
from flagperf.spec.protocol import Failure, work_orders
from run_builders import make_run

KILLED = RankFailure(1, "killed by SIGKILL")
COMPLAINT = WorkerEnded(5, "failed", "RuntimeError: connection reset by peer")


LAUNCHED = LaunchCommand(("launch", "--workers=2", "-m", "flagperf.worker"))
DIRECT = LaunchCommand(("/venv/bin/python", "-m", "flagperf.worker"))


class TellingLauncher(Launcher):
    vendor = "acme"
    name = "telling"

    def __init__(self, listed: list[RankFailure]) -> None:
        self.listed = listed

    def command(self, share: NodeShare, python: str, worker_module: str) -> LaunchCommand:
        return LaunchCommand(())

    def explain_failures(self, log: str) -> list[RankFailure]:
        return self.listed


def failure(
    folder: Path,
    ends: dict[int, WorkerEnded],
    *listed: RankFailure,
    num_ranks: int = 2,
    returncode: int = 1,
    command: LaunchCommand = LAUNCHED,
) -> Failure | None:
    run = make_run("a")
    node = msgspec.structs.replace(run.job.nodes[0], devices=run.job.nodes[0].devices * num_ranks)
    job = msgspec.structs.replace(run.job, nodes=(node,))
    for rank, end in ends.items():
        with EventWriter(folder / "events" / f"rank-{rank:05d}.jsonl") as writer:
            writer.write(end)
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / "node-000.log").write_text("first line\nlast line\n")
    (order,) = work_orders(job)
    return find_failure(order, folder, TellingLauncher(list(listed)), command, returncode)


def said(found: Failure | None) -> tuple[str, str, bool]:
    assert found is not None
    return found.status, str(found.reason), found.died


@pytest.mark.parametrize("listed", [(KILLED,), (RankFailure(0, "exit code 1"), KILLED)])
def test_a_silent_rank_is_the_cause_of_what_others_say(tmp_path: Path, listed: tuple[RankFailure, ...]) -> None:
    found = failure(tmp_path, {0: COMPLAINT}, *listed)
    assert said(found) == ("failed", "rank 1: killed by SIGKILL; see logs/rank-00001.log", True)


def test_a_rank_that_the_launcher_stopped_is_not_the_cause(tmp_path: Path) -> None:
    stopped = RankFailure(0, "killed by SIGTERM", was_stopped=True)
    found = failure(tmp_path, {1: WorkerEnded(5, "failed", "ValueError: no")}, stopped, RankFailure(1, "exit code 1"))
    assert said(found) == ("failed", "rank 1: ValueError: no; see logs/rank-00001.log", False)


def test_of_a_killed_a_stopped_and_a_complaining_rank_the_killed_one_is_named(tmp_path: Path) -> None:
    listed = RankFailure(0, "killed by SIGTERM", was_stopped=True), KILLED, RankFailure(2, "exit code 1")
    found = failure(tmp_path, {2: COMPLAINT}, *listed, num_ranks=3)
    assert found is not None and str(found.reason).startswith("rank 1: killed by SIGKILL")


def test_a_rank_that_left_with_exit_code_0_is_the_cause_of_what_others_say(tmp_path: Path) -> None:
    found = failure(tmp_path, {0: COMPLAINT}, RankFailure(0, "exit code 1"))
    assert said(found) == ("failed", "rank 1: exited before its case finished; see logs/rank-00001.log", True)


def test_all_ranks_ended_well_but_one_left_early(tmp_path: Path) -> None:
    found = failure(tmp_path, {0: WorkerEnded(5, "succeeded")}, returncode=0)
    assert found is not None and str(found.reason).startswith("rank 1: exited before its case finished")


def test_the_first_rank_that_said_why_is_quoted(tmp_path: Path) -> None:
    ends = {0: WorkerEnded(9, "failed", "late"), 1: WorkerEnded(5, "out_of_memory", "early")}
    found = failure(tmp_path, ends, RankFailure(0, "exit code 1"), RankFailure(1, "exit code 1"))
    assert said(found) == ("out_of_memory", "rank 1: early; see logs/rank-00001.log", False)


def test_a_rank_that_was_stopped_from_outside_is_named_where_nobody_says_more(tmp_path: Path) -> None:
    found = failure(tmp_path, {}, RankFailure(0, "killed by SIGTERM", was_stopped=True), num_ranks=1)
    assert found is not None and str(found.reason).startswith("rank 0: killed by SIGTERM")


def test_a_launcher_that_never_started_a_rank_is_quoted(tmp_path: Path) -> None:
    found = failure(tmp_path, {})
    assert said(found) == ("failed", "the launcher ended with 1: last line; see logs/node-000.log", False)


def test_a_node_whose_ranks_all_succeeded_has_no_failure(tmp_path: Path) -> None:
    assert failure(tmp_path, dict.fromkeys((0, 1), WorkerEnded(5, "succeeded")), returncode=0) is None


@pytest.mark.parametrize(
    ("returncode", "words"),
    [
        (-9, "killed by SIGKILL, often because the machine ran out of memory"),
        (-11, "killed by SIGSEGV"),
        (7, "exit code 7"),
    ],
)
def test_the_return_code_of_a_worker_without_a_launcher_is_the_ranks(
    tmp_path: Path, returncode: int, words: str
) -> None:
    found = failure(tmp_path, {}, num_ranks=1, returncode=returncode, command=DIRECT)
    assert said(found) == ("failed", f"rank 0: {words}; see logs/rank-00000.log", True)


def test_a_worker_without_a_launcher_that_recorded_its_error_is_quoted(tmp_path: Path) -> None:
    found = failure(tmp_path, {0: COMPLAINT}, num_ranks=1, returncode=1, command=DIRECT)
    assert found is not None and COMPLAINT.reason in str(found.reason) and not found.died


def test_a_worker_without_a_launcher_may_leave_too_early(tmp_path: Path) -> None:
    found = failure(tmp_path, {}, num_ranks=1, returncode=0, command=DIRECT)
    assert found is not None and "exited before its case finished" in str(found.reason)


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
