from __future__ import annotations

import pytest

from flagperf.api import Device, NodeShare, RankFailure
from flagperf.kit import TorchrunLauncher

CARDS = tuple(Device(f"gpu-{index}", "A1", "A1", index) for index in range(2))


class SomeLauncher(TorchrunLauncher):
    vendor = "acme"


def share(node_index: int = 0, num_nodes: int = 1, allowed_cores: int = 8, host_workers: int = 2) -> NodeShare:
    return NodeShare(node_index, num_nodes, CARDS, "10.0.0.1", 29501, allowed_cores, host_workers)


# The command


def test_a_single_worker_is_started_without_a_launcher() -> None:
    one = NodeShare(0, 1, CARDS[:1], "10.0.0.1", 29501, allowed_cores=8, host_workers=1)
    command = SomeLauncher().command(one, "/venv/bin/python", "flagperf.worker")
    assert command.argv == ("/venv/bin/python", "-m", "flagperf.worker")
    assert command.environment({"RANK": "7", "WORLD_SIZE": "8"}) == {
        "OMP_NUM_THREADS": "8",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29501",
    }
    assert all(setting.reason for setting in command.settings)


def test_the_command_names_the_shape_and_the_meeting_point() -> None:
    command = SomeLauncher().command(share(node_index=1, num_nodes=4), "/venv/bin/python", "flagperf.worker")
    shape = ("--nnodes=4", "--node-rank=1", "--nproc-per-node=2", "--master-addr=10.0.0.1", "--master-port=29501")
    started = ("/venv/bin/python", "-m", "torch.distributed.run")
    assert command.argv == (*started, *shape, "--max-restarts=0", "-m", "flagperf.worker")
    one_each = NodeShare(1, 2, CARDS[:1], "10.0.0.1", 29501, allowed_cores=8, host_workers=1)
    assert "torch.distributed.run" in SomeLauncher().command(one_each, "python", "flagperf.worker").argv


@pytest.mark.parametrize("shape", [share(), NodeShare(1, 2, CARDS, "127.0.0.1", 29501, 8, 4)])
def test_on_one_machine_the_ranks_meet_on_the_loopback_address(shape: NodeShare) -> None:
    command = SomeLauncher().command(shape, "python", "flagperf.worker")
    assert command.argv[:3] == ("python", "-m", "flagperf.kit.loopback_torchrun")
    assert "--master-addr=127.0.0.1" in command.argv


@pytest.mark.parametrize(
    ("allowed_cores", "host_workers", "threads"),
    [(8, 2, "4"), (8, 3, "2"), (7, 8, "1"), (2, 4, "1"), (1, 1, "1"), (128, 8, "16")],
)
def test_workers_share_the_cores_of_their_machine_evenly_and_get_one_at_least(
    allowed_cores: int, host_workers: int, threads: str
) -> None:
    command = SomeLauncher().command(share(allowed_cores=allowed_cores, host_workers=host_workers), "python", "w")
    (setting,) = command.settings
    assert (setting.name, setting.value) == ("OMP_NUM_THREADS", threads)
    assert setting.reason == f"{allowed_cores} allowed cores over {host_workers} workers of this machine"


# What torch.distributed.run says when ranks fail

FAILURE = """\
[{index}]:
  time      : 2026-01-02_03:04:05
  host      : node1.example
  rank      : {rank} (local_rank: {local_rank})
  exitcode  : {exit_code} (pid: 43{rank:02d}) {signal}
  error_file: <N/A>
  traceback : {traceback}"""

PLAIN = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def failure(rank: int, exit_code: int, signal: str = "", traceback: str = PLAIN, index: int = 0) -> str:
    return FAILURE.format(
        index=index, rank=rank, local_rank=rank % 8, exit_code=exit_code, signal=signal, traceback=traceback
    )


def log(root: str, *others: str) -> str:
    """What comes before is the agent's own chatter, with the numbers of other ranks in it."""
    return f"""\
W0102 03:04:05.100000 4200 site-packages/torch/distributed/run.py:852] *****************************************
W0102 03:04:05.900000 4200 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 4300 closing signal SIGTERM
E0102 03:04:06.100000 4200 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 6 (pid: 4306) of binary: /venv/bin/python
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
flagperf.worker FAILED
------------------------------------------------------------
Failures:
{chr(10).join(others) or "  <NO_OTHER_FAILURES>"}
------------------------------------------------------------
Root Cause (first observed failure):
{root}
============================================================
"""  # noqa: E501


def explain(text: str) -> list[RankFailure]:
    return SomeLauncher().explain_failures(text)


KILLED = "killed by SIGKILL, often because the machine ran out of memory"


@pytest.mark.parametrize(
    "text",
    [
        log(failure(13, -9, "(SIGKILL)", index=1), failure(12, 1), failure(14, -15, "(SIGTERM)", index=2)),
        log(failure(12, 1), failure(13, -9, "(SIGKILL)", index=1), failure(14, -15, "(SIGTERM)", index=2)),
        log(failure(14, -15, "(SIGTERM)", index=2), failure(12, 1), failure(13, -9, "(SIGKILL)", index=1)),
    ],
    ids=["the killed one is the root", "the complaining one is the root", "the stopped one is the root"],
)
def test_all_failures_are_told_whichever_of_them_torchrun_takes_for_the_cause(text: str) -> None:
    stopped = "Sending process 4300 closing signal", "Sending process 4314 closing signal"
    assert explain(text.replace(*stopped)) == [
        RankFailure(12, "exit code 1", exit_code=1),
        RankFailure(13, KILLED, exit_code=-9),
        RankFailure(14, "killed by SIGTERM", was_stopped=True, exit_code=-15),
    ]


TRACEBACK = "Traceback (most recent call last):\n    rank : 99\n    exitcode : 99\n  RuntimeError: rank: 98"
NO_WARNINGS = "\n".join(line for line in log(failure(1, -15)).splitlines() if not line.startswith("W"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (log(failure(1, 1)), RankFailure(1, "exit code 1", exit_code=1)),
        (log(failure(1, 137)), RankFailure(1, "exit code 137", exit_code=137)),
        (log(failure(1, -9)), RankFailure(1, KILLED, exit_code=-9)),
        (log(failure(1, -99)), RankFailure(1, "killed by signal 99", exit_code=-99)),
        # torchrun's own words tell whom it stopped: "Sending process 4300 closing signal"
        (log(failure(0, -9, "(SIGKILL)")), RankFailure(0, KILLED, was_stopped=True, exit_code=-9)),
        (log(failure(1, -15, "(SIGTERM)")), RankFailure(1, "killed by SIGTERM", exit_code=-15)),
        (NO_WARNINGS, RankFailure(1, "killed by SIGTERM", was_stopped=True, exit_code=-15)),
        (log(failure(3, 1, traceback=TRACEBACK)), RankFailure(3, "exit code 1", exit_code=1)),
        # of several reports the last counts
        (log(failure(1, 1)) + log(failure(2, -11)), RankFailure(2, "killed by SIGSEGV", exit_code=-11)),
    ],
)
def test_a_single_failure(text: str, told: RankFailure) -> None:
    assert explain(text) == [told]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/venv/bin/python: No module named torch",
        "  rank      : 3 (local_rank: 3)\n  exitcode  : 1 (pid: 7)\n",
        log(failure(5, 1)).partition("exitcode  : 1 (pid: 4305)")[0],
        log("").partition("Root Cause")[0],
        log(failure(5, 1), failure(6, 1)).partition("Root Cause")[0],
    ],
    ids=["empty", "no torch", "no report", "cut off in the root cause", "cut off before it", "cut off after others"],
)
def test_without_a_whole_report_nobody_is_blamed(text: str) -> None:
    assert explain(text) == []


def test_a_report_of_the_installed_torch_is_read() -> None:
    errors = pytest.importorskip("torch.distributed.elastic.multiprocessing.errors")
    failures = {
        rank: errors.ProcessFailure(local_rank=rank, pid=100 + rank, exitcode=code, error_file="<N/A>")
        for rank, code in enumerate((1, -9, -15))
    }
    log = f"W1 Sending process 102 closing signal SIGTERM\n{errors.ChildFailedError('flagperf.worker', failures)}\n"
    assert explain(log) == [
        RankFailure(0, "exit code 1", exit_code=1),
        RankFailure(1, KILLED, exit_code=-9),
        RankFailure(2, "killed by SIGTERM", was_stopped=True, exit_code=-15),
    ]
