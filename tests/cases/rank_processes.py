"""The ranks of a test: forked processes in one gloo group, without launcher and agent.

Importing torch costs more than the work of most tests. So there is one server for all tests of a pytest process, which
imports once and then forks. It reads a folder and a world size from each line of stdin, and answers with the process
id of their parent process, then with its exit code. It ends when its stdin is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import pickle
import select
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

    The function is found by its name, in a helper module.
    """
    folder.mkdir()
    (folder / "imports").write_bytes(pickle.dumps(list(imports)))
    (folder / "work").write_bytes(pickle.dumps((function, items)))
    code = _run_to_the_end(folder, world_size)
    assert code == 0, (folder / "log").read_text()[-50_000:]
    ranks = [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(world_size)]
    return [list(answers) for answers in zip(*ranks, strict=True)]


def _run_to_the_end(folder: Path, world_size: int) -> int:
    """No process of the group outlives it."""
    server = _server()
    assert server.stdin is not None
    server.stdin.write(f"{folder} {world_size}\n".encode())
    group = int(_read_line(server))
    try:
        return int(_read_line(server))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@functools.cache
def _server() -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    atexit.register(server.communicate)  # closes its stdin and waits
    return server


def _read_line(server: subprocess.Popen[bytes]) -> bytes:
    """Unbuffered: a line that was read ahead would be missed by select."""
    assert server.stdout is not None
    assert select.select([server.stdout], [], [], SECONDS)[0], f"the ranks took more than {SECONDS} s"
    line = server.stdout.readline()
    assert line, "the server of the ranks has died; its traceback is on stderr"
    return line


# --- the server -----------------------------------------------------------------------------------------------------


def serve() -> None:
    for line in sys.stdin:
        folder, world_size = line.rsplit(maxsplit=1)
        for name in pickle.loads((Path(folder) / "imports").read_bytes()):
            importlib.import_module(name)
        gc.freeze()  # timed rows collect garbage: what was imported is then not searched again and again
        parent = os.fork()
        if parent == 0:
            _leave(_run_group(Path(folder), int(world_size)))
        print(parent, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]), flush=True)


def _run_group(folder: Path, world_size: int) -> int:
    """The parent process of the ranks. The first rank that fails ends it, and the test kills the others."""
    import torch

    os.setsid()
    with (folder / "log").open("w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    function, items = pickle.loads((folder / "work").read_bytes())
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

    # What a launcher sets, and accelerate reads.
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
    """Exits like a worker: native threads may abort the interpreter's own shutdown."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
