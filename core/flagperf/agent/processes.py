"""Stopping every process that a node's share of a job started, orphans included."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

import psutil

MARKER = "FLAGPERF_WORKERS_OF"
"""Set to run id, node and part (workers, probe) in the environment of the launcher and of the probe. All their
descendants inherit it, re-parented ones too."""

GRACE_SECONDS = 5.0


def node_marker(run_id: str, node_index: int) -> str:
    """What all processes of a node's share carry, each with its part behind it."""
    return f"{run_id}/{node_index}"


def set_when_closed(stream: IO[bytes]) -> threading.Event:
    """An event that is set when the other end closes the stream."""
    closed = threading.Event()

    def wait() -> None:
        # Not stream.read(): a thread that holds the stream's lock when the interpreter ends makes it abort.
        while os.read(stream.fileno(), 65536):
            pass
        closed.set()

    threading.Thread(target=wait, daemon=True).start()
    return closed


def close_all_but(kept: Collection[int]) -> None:
    """In a fork of the agent: its streams must not stay open here, as their end tells that the agent is gone."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(number)


def kill_group(leader_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader_pid, signal.SIGKILL)


def stop_workers(launcher: subprocess.Popen[bytes], marker: str) -> None:
    """Ask the launcher's group to end, then kill whatever still carries the marker."""
    if launcher.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(GRACE_SECONDS)
    kill_marked(marker)
    launcher.wait()


def kill_marked(marker: str, clock: Callable[[], float] = time.monotonic) -> tuple[int, tuple[int, ...]]:
    """Kill whatever carries this marker, or one below it; stopped processes too. Gives how many are gone, and the pids
    of those that are still there after GRACE_SECONDS (a driver may hold them), which are printed too.
    psutil compares a process's start time before it kills: a pid that was given away meanwhile is left alone."""
    found: set[psutil.Process] = set()
    left: list[psutil.Process] = []
    deadline, num_empty_scans = clock() + GRACE_SECONDS, 0
    # Twice: the environment of a process cannot be read for a moment during exec.
    while True:
        left = marked_processes(marker)
        num_empty_scans = 0 if left else num_empty_scans + 1
        found.update(left)
        for process in left:
            with contextlib.suppress(psutil.Error):  # it is gone, or it is not ours to kill
                process.kill()
        if num_empty_scans == 2 or clock() >= deadline:
            break
        time.sleep(0.05)  # not psutil.wait_procs: it would take the launcher's exit code from its Popen
    left_pids = tuple(sorted(process.pid for process in left))
    if left_pids:
        print(f"could not be killed: processes {', '.join(map(str, left_pids))}", file=sys.stderr)
    return len(found) - len(left_pids), left_pids


def marked_processes(marker: str) -> list[psutil.Process]:
    """Of this user, without this process itself."""
    others = (process for process in psutil.process_iter() if process.pid != os.getpid())
    return [process for process in others if _carries(process, marker)]


def _carries(process: psutil.Process, marker: str) -> bool:
    try:
        if not f"{process.environ().get(MARKER, '')}/".startswith(f"{marker}/"):
            return False
        return process.uids().real == os.getuid() and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
