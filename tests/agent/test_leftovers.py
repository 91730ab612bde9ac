"""Real processes: whatever a job started is gone afterwards, orphans included."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from flagperf.agent import leftovers
from flagperf.agent.leftovers import MARKER, folder_prefix, kill_marked, marked_processes, stop_workers

RUN = f"run-{uuid.uuid4()}"
ORPHANING = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("up", flush=True)
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends at all is waited for."""
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 600.0)


def start(source: str, marker: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        env={**os.environ, MARKER: marker},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def wait_for_marked(marker: str, count: int) -> None:
    """A process that is just becoming its program has no readable environment for a moment."""
    deadline = time.monotonic() + 600
    while len(marked_processes(marker)) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_launcher_and_its_orphans_are_stopped_and_another_node_of_the_run_is_left_alone(is_gone: bool) -> None:
    mine, other = f"{RUN}-{is_gone}/0", f"{RUN}-{is_gone}/1"
    launchers = {marker: start(ORPHANING, marker) for marker in (mine, other)}
    if is_gone:
        launchers[mine].kill()
        launchers[mine].wait()
    for marker, count in ((mine, 1 if is_gone else 2), (other, 2)):
        wait_for_marked(marker, count)
    stop_workers(launchers[mine], mine)
    assert marked_processes(mine) == [] and launchers[mine].returncode is not None
    wait_for_marked(other, 2)
    stop_workers(launchers[other], other)


def test_one_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.1)
    launcher = start(DEAF, f"{RUN}-3/0")
    stop_workers(launcher, f"{RUN}-3/0")
    assert not psutil.pid_exists(launcher.pid)


def test_a_process_that_cannot_be_killed_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    stays = start(DEAF, f"{RUN}-6/0/workers")
    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "kill", refuse)
        clock = itertools.count(0.0, leftovers.GRACE_SECONDS / 3).__next__
        assert kill_marked(f"{RUN}-6/0", clock) == (0, (stays.pid,))
    assert f"could not be killed: processes {stays.pid}" in capfd.readouterr().err
    assert kill_marked(f"{RUN}-6/0") == (1, ())
    stays.wait()


WATCHED = """
import sys
import msgspec
from flagperf.agent import leftovers
from flagperf.agent.leftovers import Watchdog
leftovers.GRACE_SECONDS = 600.0
with Watchdog() as watchdog:
    watchdog.tell(msgspec.Raw(msgspec.json.encode({"job": {"run_id": sys.argv[1]}, "node_index": 0})))
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("ends_orderly", [False, True])
def test_the_watchdog_of_a_killed_agent_ends_stopped_and_deaf_processes_and_removes_the_folder(
    tmp_path: Path, ends_orderly: bool
) -> None:
    """Of every part of this node's share; and nothing where the agent came to its end, which has stopped all."""
    run_id = f"{RUN}-5-abcdef"
    agent = subprocess.Popen(
        [sys.executable, "-c", WATCHED, run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    assert agent.stdout and agent.stdout.readline() == b"up\n"
    deaf, stopped = start(DEAF, f"{run_id}/0/workers"), start(DEAF, f"{run_id}/0/probe")
    other = start(DEAF, f"{run_id}/01/workers")
    psutil.Process(stopped.pid).suspend()
    mine, others = tmp_path / f"{folder_prefix(run_id, 0)}x", tmp_path / f"{folder_prefix(run_id, 1)}x"
    for folder in (mine, others):
        (folder / "inside").mkdir(parents=True)
    (tmp_path / f"{folder_prefix(run_id, 0)}link").symlink_to(others)
    if not ends_orderly:
        os.killpg(agent.pid, signal.SIGKILL)  # with its whole session, as the command does
    _, said = agent.communicate(timeout=600)
    if ends_orderly:
        assert (said, deaf.poll(), stopped.poll(), mine.exists()) == (b"", None, None, True)
    else:
        assert f"left behind: 2 processes, which were killed; removed: {mine}" in said.decode()
        assert (deaf.wait(600), stopped.wait(600), mine.exists()) == (-signal.SIGKILL, -signal.SIGKILL, False)
    assert other.poll() is None and (others / "inside").exists()
    for process in (deaf, stopped, other):
        process.kill()
        process.wait()
