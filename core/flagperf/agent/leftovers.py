"""Ending every process that a node's share of a job started, orphans included; and the watchdog, which does that where
the agent was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO

import msgspec
import psutil

from flagperf.messages import Message, message
from flagperf.processes import name_process

MARKER = "FLAGPERF_WORKERS_OF"
"""Set to run id, node and part (workers, probe) in the environment of the launcher and of the probe. All their
descendants inherit it, re-parented ones too."""

GRACE_SECONDS = 5.0


def node_marker(run_id: str, node_index: int) -> str:
    """Return what all processes of a node's share carry, each with its part behind it."""
    return f"{run_id}/{node_index}"


def set_when_closed(stream: IO[bytes]) -> threading.Event:
    """Return an event that is set when the other end closes the stream."""
    closed = threading.Event()

    def wait() -> None:
        # Not stream.read(): a thread that holds the stream's lock when the interpreter ends makes it abort.
        while os.read(stream.fileno(), 65536):
            pass
        closed.set()

    threading.Thread(target=wait, daemon=True).start()
    return closed


def close_all_but(kept: Collection[int]) -> None:
    """Close all other files in a fork of the agent: the end of its streams tells that the agent is gone."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the folder that listed them
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
    """Kill whatever carries this marker, or one below it; stopped processes too. Return how many are gone, and the pids
    of those that are still there after GRACE_SECONDS (a driver may hold them); print these too.

    psutil compares a process's start time before it kills: a pid that was given away meanwhile is left alone.
    """
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
    """Return this user's processes that carry the marker, or one below it, without this process itself."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or is somebody else's
            if (
                process.pid != os.getpid()
                and f"{process.environ().get(MARKER, '')}/".startswith(f"{marker}/")
                and process.uids().real == os.getuid()
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


_ORDERLY_END = b"."


class _Job(msgspec.Struct, frozen=True):
    run_id: str


class RunShare(msgspec.Struct, frozen=True):
    """The part of a work order that tells whose processes and folders they are."""

    job: _Job
    node_index: int

    @property
    def run_id(self) -> str:
        return self.job.run_id


class Watchdog:
    """A fork of the agent that outlives it. The agent stops what it starts, unless it is killed. Then the watchdog ends
    every process that carries the marker of this node's share of a run, also stopped ones and ones that ignore SIGTERM,
    and removes the temporary folders. It needs no command: that may be dead or cut off.

    It keeps stderr open: whoever reads the agent's stderr to its end has waited for it, and has what it says. It is
    entered before there are threads.
    """

    def __init__(self) -> None:
        self._told: list[RunShare] = []

    def __enter__(self) -> Watchdog:
        reading, self._pipe = os.pipe()  # neither end is inherited by programs
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.setsid()  # what kills the agent with its session leaves this process
                name_process("flagperf-watch")
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                close_all_but({2, reading})
                with os.fdopen(reading, "rb") as pipe:
                    lines = pipe.read().splitlines()  # until the agent's end
                if lines[-1:] != [_ORDERLY_END]:
                    for line in lines:
                        clean_up(msgspec.json.decode(line, type=RunShare))
            finally:
                os._exit(0)
        os.close(reading)
        return self

    def tell(self, order: msgspec.Raw) -> None:
        """Tell it of a run that is about to start."""
        share = msgspec.json.decode(order, type=RunShare)
        self._told.append(share)
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._pipe, msgspec.json.encode(share) + b"\n")

    def clean_up(self) -> None:
        """Clean up after a run whose own process was killed."""
        clean_up(self._told[-1])

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End the watchdog. After an error of the agent's own it does its work, as if the agent had been killed."""
        if error is None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, _ORDERLY_END)
        os.close(self._pipe)
        os.waitpid(self._pid, 0)


def folder_prefix(run_id: str, node_index: int) -> str:
    """Return the start of the name of a run's temporary folder. It has the random end of the id alone: workers open
    sockets below it, and the path of a socket has at most 107 bytes."""
    return f"flagperf-{run_id[-6:]}-{node_index}-"


def clean_up(share: RunShare) -> None:
    """End and remove what a node's share of a run left behind, and print what that was."""
    num_killed, _ = kill_marked(node_marker(share.run_id, share.node_index))
    folders = []
    for path in Path(tempfile.gettempdir()).glob(f"{folder_prefix(share.run_id, share.node_index)}*"):
        if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
            folders.append(path)
    if num_killed or folders:
        removed = ", ".join(map(str, folders)) or "no folder"
        print(
            f"the agent left behind: {num_killed} processes, which were killed; removed: {removed}",
            file=sys.stderr,
            flush=True,
        )


def exit_message(code: int) -> Message:
    """Say how a process ended. `code` is as subprocess has it: negative for a signal."""
    if code >= 0:
        return message("exit.code", code=code)
    if -code == signal.SIGKILL:
        return message("exit.sigkill")
    known = {number.value: number.name for number in signal.Signals}
    return message("exit.signal", signal=known.get(-code, str(-code)))
