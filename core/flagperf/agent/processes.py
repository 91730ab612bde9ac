"""Stopping every process that a node's share of a job started, orphans included."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from typing import IO

import psutil

MARKER = "FLAGPERF_WORKERS_OF"
"""Set to run id and node in the environment of the launcher. All its descendants inherit it, re-parented ones too."""

GRACE_SECONDS = 5.0


_libc = ctypes.CDLL(None)  # loaded here: between fork and exec only a call is safe
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Called in a child between fork and exec: the kernel sends it SIGTERM when the agent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


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


def kill_group(leader_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader_pid, signal.SIGKILL)


def stop_workers(launcher: subprocess.Popen[bytes], marker: str) -> None:
    """Ask the launcher's group to end, then kill whatever still carries the marker. Returns when none is left."""
    if launcher.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(GRACE_SECONDS)
    deadline, num_empty_scans = time.monotonic() + GRACE_SECONDS, 0
    # Twice: the environment of a process cannot be read for a moment during exec.
    while num_empty_scans < 2 and time.monotonic() < deadline:
        left = marked_processes(marker)
        num_empty_scans = 0 if left else num_empty_scans + 1
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=0.5)
        if num_empty_scans < 2:
            time.sleep(0.05)
    launcher.wait()


def marked_processes(marker: str) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _carries(process, marker)]


def _carries(process: psutil.Process, marker: str) -> bool:
    try:
        return process.environ().get(MARKER) == marker and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
