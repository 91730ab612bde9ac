"""A process tree that is killed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest

from flagperf import processes
from flagperf.processes import kill_tree
from live_processes import is_alive


def start(script: str) -> subprocess.Popen[str]:
    """A shell that has started a command, with that command."""
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_wrapper_is_stopped_before_its_tool_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it goes on with its next command."""
    sent: list[tuple[int, int]] = []
    kill = os.kill
    monkeypatch.setattr(processes.os, "kill", lambda pid, number: (sent.append((pid, number)), kill(pid, number)))
    process = start("sleep 3600 & echo ready; wait; sleep 3600")
    (tool,) = psutil.Process(process.pid).children()
    kill_tree(process.pid)
    assert process.wait(600) == -signal.SIGKILL
    pids = (process.pid, tool.pid)
    assert sent == [(pid, number) for number in (signal.SIGSTOP, signal.SIGKILL) for pid in pids]
    wait_until(lambda: not is_alive(tool))


def test_what_a_process_starts_while_it_is_looked_at_is_found_too() -> None:
    seconds = f"3600.{os.getpid()}"  # by which these are known
    process = start(f"echo ready; while :; do sleep {seconds} & sleep 0; done")
    wait_until(lambda: len(psutil.Process(process.pid).children()) >= 3)
    kill_tree(process.pid)
    assert process.wait(600) == -signal.SIGKILL
    wait_until(lambda: not any(seconds in (each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])))


def test_a_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    kill_tree(process.pid)
