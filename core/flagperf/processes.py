"""Processes and the trees below them: start Python, count, kill, die with the parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_libc = ctypes.CDLL(None)  # loaded here: between fork and exec only a call is safe
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15

# `python -m` imports from the current folder first, so that a user's own json.py or torch.py would be taken for the
# real one. `-P` turns that off from Python 3.11 on; this does the same on 3.10 as well.
_START = (
    "import sys; sys.path = [*filter(None, sys.path)]; "
    "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
)


def module_command(python: str, module: str) -> tuple[str, ...]:
    """Return `python -m module` without the current folder among the places to import from. PYTHONPATH still counts."""
    return (python, "-c", _START.format(module))


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """Have this process get a signal when its parent dies. A child calls it between fork and exec, or at its start."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


def name_process(name: str) -> None:
    """Set what `ps` and `top` show, at most 15 letters: forks have the command line of the process above."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return the pids of children, their children and so on; some may have ended since. Raise psutil.NoSuchProcess
    where `pid` is gone.

    The kernel's own lists are read where there are any: psutil reads every process of the machine (14 ms with 700).
    """
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        import psutil  # not at the top: every command imports this package, few count processes

        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    found: list[int] = []
    pending = [pid]
    while pending:
        children: list[int] = []
        for path in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread or the process is gone: so are its children's claims
                children += [int(word) for word in path.read_text().split()]
        found += children
        pending += children
    return found


def kill_tree(pid: int) -> None:
    """Kill a process that is not yet waited for, and all below it. They are stopped first, from the top: a wrapper
    script whose tool is killed before it would go on, end with a code of its own or start its next command, which
    nobody would find any more. What was started meanwhile shows when we look again."""
    import psutil

    found: list[int] = []
    new = [pid]
    while new:
        for each in new:
            _signal(each, signal.SIGSTOP)
        found += new
        try:
            new = [each for each in descendants(pid) if each not in found]
        except psutil.NoSuchProcess:
            new = []
    for each in found:
        _signal(each, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
