"""Whether processes are still there: asked of the kernel, while they may be ending."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def is_alive(process: psutil.Process) -> bool:
    """Not gone, and not a zombie either, also if it goes while it is asked."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_pid_alive(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
