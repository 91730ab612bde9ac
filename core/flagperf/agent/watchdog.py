"""The watchdog: a fork of the agent that outlives it. Where the agent was killed, it ends every process that carries
the marker of this node's share of a run, also stopped ones and ones that ignore SIGTERM, and removes the temporary
folders. It works without the command that started the agent, which may be dead or cut off.

It keeps stderr open: whoever reads the agent's stderr to its end has waited for it, and has what it says.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import msgspec

from flagperf.agent.processes import close_all_but, kill_marked, node_marker
from flagperf.kit.process_tree import name_process

_ORDERLY_END = b"."


class _Job(msgspec.Struct, frozen=True):
    run_id: str


class RunShare(msgspec.Struct, frozen=True):
    """Of a work order, what tells whose processes and folders they are."""

    job: _Job
    node_index: int

    @property
    def run_id(self) -> str:
        return self.job.run_id


class Watchdog:
    """Entered before there are threads. The block stops what it starts, unless it is killed."""

    def __init__(self) -> None:
        self._told: list[RunShare] = []

    def __enter__(self) -> Watchdog:
        reading, self._pipe = os.pipe()  # neither end is inherited by programs
        self._pid = os.fork()
        if self._pid == 0:
            _watch(reading)
        os.close(reading)
        return self

    def tell(self, order: msgspec.Raw) -> None:
        """Of a run that is about to start."""
        share = msgspec.json.decode(order, type=RunShare)
        self._told.append(share)
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(self._pipe, msgspec.json.encode(share) + b"\n")

    def clean_up(self) -> None:
        """After a run whose own process was killed."""
        clean_up(self._told[-1])

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """After an error of the agent's own, the watchdog does its work as if it had been killed."""
        if error is None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, _ORDERLY_END)
        os.close(self._pipe)
        os.waitpid(self._pid, 0)


def folder_prefix(run_id: str, node_index: int) -> str:
    """Of the temporary folder of a run. Short, with the random end of the id alone: workers open sockets below it, and
    the path of a socket has at most 107 bytes."""
    return f"flagperf-{run_id[-6:]}-{node_index}-"


def _watch(reading: int) -> NoReturn:
    """In the fork, in a session of its own: what kills the agent with its session leaves it alone."""
    try:
        os.setsid()
        name_process("flagperf-watch")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        close_all_but({2, reading})
        with os.fdopen(reading, "rb") as pipe:
            lines = pipe.read().splitlines()
        if lines[-1:] != [_ORDERLY_END]:
            for line in lines:
                clean_up(msgspec.json.decode(line, type=RunShare))
    finally:
        os._exit(0)


def clean_up(share: RunShare) -> None:
    num_killed, _ = kill_marked(node_marker(share.run_id, share.node_index))
    folders = _remove_folders(folder_prefix(share.run_id, share.node_index))
    if num_killed or folders:
        removed = ", ".join(map(str, folders)) or "no folder"
        print(
            f"the agent left behind: {num_killed} processes, which were killed; removed: {removed}",
            file=sys.stderr,
            flush=True,
        )


def _remove_folders(prefix: str) -> list[Path]:
    found = [path for path in Path(tempfile.gettempdir()).glob(f"{prefix}*") if _is_own_folder(path)]
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.getuid()
