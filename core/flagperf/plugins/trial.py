"""Try a plugin's code in a fork of this process, with a time limit, before it is called here.

An import that loops, a hook that calls os._exit and a library that crashes cannot be caught: they would hang or end the
command without a word. In the fork they cost nothing but the fork. What came back there is called again here, so only
code that may be called twice is tried. A verdict is not kept between commands: what an import does depends on more than
the plugin's files (the environment, a driver, a network drive), and a fork takes 2 ms.

A program with threads is not forked: what another thread holds at that moment (an import, a lock) would never be
released in the fork, and an innocent plugin would look hung. There it is called as it is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from flagperf.errors import BadInput, NodeFailed
from flagperf.units import exit_status

SECONDS_VARIABLE = "FLAGPERF_PLUGIN_SECONDS"
DEFAULT_SECONDS = 10.0

_RETURNED, _RAISED, _INTERRUPTED = b".", b"!", b"^"
"""What the fork writes of each call."""

_is_apart = False
_has_harmless_threads = False


def try_out(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Of each call why it did not come back; empty where it did. What it gave or raised does not matter here."""
    if _is_apart or (threading.active_count() > 1 and not _has_harmless_threads):
        return [""] * len(calls)
    problems: list[str] = []
    while len(problems) < len(calls):
        problems += _try_in_fork(calls[len(problems) :])
    return problems


def set_apart() -> None:
    """Said by a fork with a time limit, where nothing needs to be tried: a fork of its own would outlive it."""
    global _is_apart  # a fact about the process
    _is_apart = True


def allow_own_threads() -> None:
    """Said by the agent, whose threads only wait for a pipe or a child: they hold nothing that a fork would miss."""
    global _has_harmless_threads  # a fact about the process
    _has_harmless_threads = True


def limit_seconds() -> float:
    """For one call. Longer than any honest import takes, also from a slow network drive."""
    text = os.environ.get(SECONDS_VARIABLE) or str(DEFAULT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 3600:
        raise BadInput(f"{SECONDS_VARIABLE}={text!r}: give seconds, above 0 and at most 3600")
    return seconds


def _try_in_fork(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Of the calls up to the first that ended the fork or never ended."""
    seconds = limit_seconds()
    reading, writing = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:  # a limit on the number of processes
        raise NodeFailed(f"cannot start a process: {error.strerror}") from None
    if pid == 0:
        _call_all(calls, writing, seconds)
    os.close(writing)
    problems: list[str] = []
    is_late = has_ended = False
    try:
        while len(problems) < len(calls) and not (is_late or has_ended):
            is_late = not select.select([reading], [], [], seconds)[0]
            marks = b"" if is_late else os.read(reading, 4096)
            has_ended = not is_late and not marks
            problems += ["raised KeyboardInterrupt" if mark in _INTERRUPTED else "" for mark in marks]
    finally:
        os.close(reading)
        status = _end(pid)
    if is_late:
        problems.append(f"did not return within {seconds:g} s (${SECONDS_VARIABLE} allows more)")
    elif has_ended:
        problems.append(f"ended the process ({status})")
    return problems


def _call_all(calls: Sequence[Callable[[], object]], writing: int, seconds: float) -> NoReturn:
    """In the fork: silent, in a session of its own (tools that it starts are stopped with it), and bounded by the
    kernel too, in case the parent is killed meanwhile."""
    try:
        os.setsid()
        set_apart()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silence, stream)
        for call in calls:
            signal.setitimer(signal.ITIMER_REAL, seconds + 5)
            os.write(writing, _mark_of(call))
    finally:
        os._exit(0)


def _mark_of(call: Callable[[], object]) -> bytes:
    """What it raises is reported where it is called again. A KeyboardInterrupt would be taken for Ctrl-C there. Ctrl-C
    does not reach the fork's session, so here it is the plugin's own."""
    try:
        call()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException:  # noqa: BLE001  a plugin boundary
        return _RAISED
    return _RETURNED


def _end(pid: int) -> str:
    """Stop it with all that it started; how it had ended by then."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have no group yet
        os.killpg(pid, signal.SIGKILL)
    try:
        os.kill(pid, signal.SIGKILL)  # not reaped so far: the pid is still its own
        return exit_status(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    except (ProcessLookupError, ChildProcessError):  # a caller that ignores SIGCHLD: the kernel has reaped it
        return "exit code unknown"
