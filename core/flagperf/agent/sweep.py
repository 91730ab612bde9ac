"""`agent sweep`: what an agent left behind that was killed. Reads a SweepRequest, ends every process that carries the
marker of that node's share of the run, removes its temporary folder, and prints a SweepAnswer."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

import msgspec

from flagperf.agent.processes import kill_marked, node_marker
from flagperf.spec import SweepAnswer, SweepRequest


def main(stdin: IO[bytes], stdout: IO[bytes]) -> int:
    request = msgspec.json.decode(stdin.read(), type=SweepRequest)
    num_killed, left_pids = kill_marked(node_marker(request.run_id, request.node_index))
    folders = tuple(map(str, _remove_folders(folder_prefix(request.run_id, request.node_index))))
    stdout.write(msgspec.json.encode(SweepAnswer(num_killed, folders, left_pids)))
    return 0


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
