"""Find out whether the command that writes a bundle, its parent, is alive, and who else is at work on the bundle.

The parent holds an advisory lock (flock) on its own file of events for as long as it lives; the kernel releases the
lock however the parent ends. The lock is seen from every container of the machine, and on file systems that share
locks (NFS, GPFS, Lustre with `flock`) from other machines too. A lock that is not seen proves something on the same
machine only. Where a file system has no locks, the process is looked for by its number: one that was started later
than the run is another process.

Agents that write into the folder share a lock of environment.json, which no run replaces. Whoever ends a run in place
of its command needs both locks alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from flagperf.bundle.paths import DETACHED, DETACHED_END, DETACHED_RUN, ENVIRONMENT_FILE, FOLDERS, PARENT_EVENTS
from flagperf.errors import BadInput, BundleInUse
from flagperf.events import Clock
from flagperf.files import read_regular

_MAX_LINE_BYTES = _MAX_RECORD_BYTES = 1 << 20

_NO_NAME = ("", "localhost")
"""Names that any machine may have."""


Unfinished = Literal["running", "killed", "unknown"]
"""The state of a run without an ending. `killed` is proved; `unknown`: its command is, or was, on a machine that cannot
be seen from here."""


class Parent(msgspec.Struct, frozen=True):
    state: Unfinished
    host: str = ""
    """Its machine. Empty if it was killed before it named one."""


class Begun(msgspec.Struct, frozen=True):
    """Written by a command in a cluster's queue before it makes the bundle."""

    run_id: str


class _Started(msgspec.Struct, frozen=True):
    """The parent's first event."""

    t_ns: int
    clock: Clock
    locked: bool = False
    pid_namespace: str = ""


@contextlib.contextmanager
def holding(bundle: Path) -> Iterator[None]:
    """Hold the lock of the parent in this process. A file system without locks is not an error."""
    path = bundle / PARENT_EVENTS
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def is_held(bundle: Path) -> bool:
    """Return True if a process is seen to hold the lock of the parent."""
    try:
        descriptor = os.open(bundle / PARENT_EVENTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    finally:
        os.close(descriptor)
    return False


def parent_of(bundle: Path) -> Parent:
    """Return the parent of a bundle without an ending. (One with an ending is still held until it is sealed.)"""
    try:
        with os.fdopen(os.open(bundle / PARENT_EVENTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            started = msgspec.json.decode(file.readline(_MAX_LINE_BYTES), type=_Started)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        started = None
    host = started.clock.host if started else ""
    if is_held(bundle):
        return Parent("running", host)
    if started is None:  # killed before its first event: nothing says where
        return Parent("unknown")
    state = _state(bundle, started)
    # A cluster's queue that started the command records its end, in a folder that names the run.
    for folder in sorted((bundle.absolute().parent / DETACHED).glob("*")) if state == "unknown" else ():
        with contextlib.suppress(OSError, BadInput, msgspec.DecodeError):
            begun = msgspec.json.decode(read_regular(folder / DETACHED_RUN, _MAX_RECORD_BYTES), type=Begun)
            if begun.run_id == bundle.name:
                return Parent("killed" if (folder / DETACHED_END).exists() else state, host)
    return Parent(state, host)


def this_pid_namespace() -> str:
    """Return the name of this process's namespace of process numbers. Empty where the kernel does not say."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  it names no path
    except OSError:
        return ""


def _state(bundle: Path, started: _Started) -> Unfinished:
    """Return the state of a parent that holds no lock that is seen from here."""
    clock = started.clock
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    if not boot_id or not clock.boot_id:
        return "unknown"
    if boot_id != clock.boot_id:
        is_same_machine = clock.host == socket.gethostname() and clock.host not in _NO_NAME
        booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        entries = (entry for folder in FOLDERS if (bundle / folder).is_dir() for entry in (bundle / folder).iterdir())
        # A file that is newer than this boot was written by another machine of the same name.
        is_over = is_same_machine and all(entry.lstat().st_mtime <= booted for entry in entries)
        return "killed" if is_over else "unknown"
    if started.locked:
        return "killed"
    if not started.pid_namespace or started.pid_namespace != this_pid_namespace():
        return "unknown"
    try:
        fields = Path(f"/proc/{clock.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "killed"
    begin_ns = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    # The kernel counts the time of processes through a suspended machine, events do not: today's difference is at
    # least that of then, so the parent itself is never taken for a later process.
    suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    has_ended = fields[0] in "ZX"  # waited for or not
    return "killed" if has_ended or begin_ns > started.t_ns + suspended_ns else "running"


@contextlib.contextmanager
def at_work(bundle: Path) -> Iterator[None]:
    """Hold the lock of an agent. A file system without locks is not an error."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = stack.enter_context((bundle / ENVIRONMENT_FILE).open("rb"))
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def alone(bundle: Path) -> Iterator[None]:
    """Hold both locks. Raise BundleInUse if another process is at work on the bundle, or that cannot be seen."""
    with contextlib.ExitStack() as stack:
        for name, mode in ((PARENT_EVENTS, "ab"), (ENVIRONMENT_FILE, "r+b")):
            try:
                file = stack.enter_context((bundle / name).open(mode))  # to write: NFS gives no such lock to a reader
            except OSError as error:
                raise BadInput(f"cannot write the bundle {bundle}: {name}: {error.strerror}") from None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                whose = "its command, or what that started, is still at work"
                raise BundleInUse(f"{bundle.name} is in use: {whose}; it can be ended when that has stopped") from None
            except OSError as error:
                why = f"the file system has no locks ({error.strerror})"
                raise BundleInUse(f"it cannot be seen whether {bundle.name} is in use: {why}") from None
        yield
