"""The ranks of a test: forked processes in one gloo group, without launcher and agent.

As a script: FOLDER WORLD_SIZE; every rank does the work in FOLDER/work and leaves its answers in FOLDER/<rank>.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

SECONDS = 900


def answers_of_ranks(
    folder: Path, world_size: int, function: Callable[[Any], Any], items: Sequence[Any], imports: Sequence[str]
) -> list[list[Any]]:
    """What the function answers, by item and rank: each rank does all the items, in one process group.

    The function is found by its name, in a helper module. Imports are done once, before the ranks are forked: they cost
    more than the work.
    """
    folder.mkdir()
    (folder / "work").write_bytes(pickle.dumps((imports, function, items)))
    with (folder / "log").open("w") as log:
        code = _run_to_the_end([sys.executable, __file__, str(folder), str(world_size)], log)
    assert code == 0, (folder / "log").read_text()[-5000:]
    ranks = [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(world_size)]
    return [list(answers) for answers in zip(*ranks, strict=True)]


def _run_to_the_end(command: list[str], log: Any) -> int:
    """With all that it started: none of that outlives it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(timeout=SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main(folder: Path, world_size: int) -> int:
    """The first rank that fails ends this process, and whoever started it ends the rest."""
    import torch

    imports, function, items = pickle.loads((folder / "work").read_bytes())
    for name in imports:
        importlib.import_module(name)
    torch.set_num_threads(1)
    for rank in range(world_size):
        if os.fork() == 0:
            _leave(_run_rank(folder, rank, world_size, function, items))
    codes = (os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(world_size))
    return next((code for code in codes if code), 0)


def _run_rank(folder: Path, rank: int, world_size: int, function: Callable[[Any], Any], items: Sequence[Any]) -> int:
    try:
        _do_all(folder, rank, world_size, function, items)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return 1
    return 0


def _do_all(folder: Path, rank: int, world_size: int, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    from torch import distributed

    # What a launcher says, and accelerate asks for.
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
    }
    distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world_size)
    answers = [function(item) for item in items]
    (folder / str(rank)).write_bytes(pickle.dumps(answers))
    distributed.destroy_process_group()


def _leave(code: int) -> NoReturn:
    """As a worker ends: native threads may abort the interpreter's own end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _leave(main(Path(sys.argv[1]), int(sys.argv[2])))
