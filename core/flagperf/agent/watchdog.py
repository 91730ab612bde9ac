"""The watchdog: a fork of the agent that outlives it. Where the agent was killed, it ends every process that carries
the marker of this node's share of the run, also stopped ones and ones that ignore SIGTERM, and removes the temporary
folder. It works without the command that started the agent, which may be dead or cut off.

It keeps stderr open: whoever reads the agent's stderr to its end has waited for it, and has what it says.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from flagperf.agent.processes import kill_marked, node_marker

_ORDERLY_END = b"."


@contextlib.contextmanager
def watched(run_id: str, node_index: int) -> Iterator[None]:
    """The block stops what it starts, unless it is killed. Called before there are threads."""
    reading, writing = os.pipe()  # neither end is inherited by programs
    pid = os.fork()
    if pid == 0:
        _watch(reading, run_id, node_index)
    os.close(reading)
    try:
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):  # it was killed
            os.write(writing, _ORDERLY_END)
        os.close(writing)
        os.waitpid(pid, 0)


def _watch(reading: int, run_id: str, node_index: int) -> NoReturn:
    """In the fork, in a session of its own: what kills the agent with its session leaves it alone."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _close_all_but({2, reading})
        if os.read(reading, 1) != _ORDERLY_END:
            _clean_up(run_id, node_index)
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    """The agent's streams and the pipe's other end among them, whose end tells that the agent has ended."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(number)


def _clean_up(run_id: str, node_index: int) -> None:
    num_killed, _ = kill_marked(node_marker(run_id, node_index))
    folders = _remove_folders(folder_prefix(run_id, node_index))
    if num_killed or folders:
        removed = ", ".join(map(str, folders)) or "no folder"
        print(
            f"the agent left behind: {num_killed} processes, which were killed; removed: {removed}",
            file=sys.stderr,
            flush=True,
        )


def folder_prefix(run_id: str, node_index: int) -> str:
    """Of the temporary folder. Short, with the random end of the id alone: workers open sockets below it, and the path
    of a socket has at most 107 bytes."""
    return f"flagperf-{run_id[-6:]}-{node_index}-"


def _remove_folders(prefix: str) -> list[Path]:
    found = [path for path in Path(tempfile.gettempdir()).glob(f"{prefix}*") if _is_own_folder(path)]
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.getuid()
