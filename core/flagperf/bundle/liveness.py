"""Is the command that writes this bundle alive; who holds it."""

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

# Whether the command that writes a bundle, its parent, is still alive.
#
# The parent holds an advisory lock (flock) on its own file of events for as long as it lives; the kernel takes the
# lock back however it ends. The lock is seen from every container of the machine, and on file systems that share
# locks (NFS, GPFS, Lustre with `flock`) from other machines too. That it is not seen proves something on the same
# machine only. Where a file system has no locks, the process is looked for by its number: one that was started later
# than the run is another process.


_FIRST_LINE_BYTES = 1 << 20

_MAX_RECORD_BYTES = 1 << 20

_NO_NAME = ("", "localhost")
"""Names that any machine may have."""


class Parent(msgspec.Struct, frozen=True):
    """`gone` is proved; `unknown` is what cannot be seen from here."""

    state: Literal["alive", "gone", "unknown"]
    host: str = ""
    """Where it runs or ran, if it got so far as to say so."""


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
    """Hold the lock of a bundle in this process. A file system without locks is no error: `is_held` says so."""
    path = bundle / PARENT_EVENTS
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def is_held(bundle: Path) -> bool:
    """Whether a process holds the lock, as far as it is seen from here."""
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
    """Of a bundle without an ending; one with an ending is still held until it is sealed."""
    started = _started(bundle)
    host = started.clock.host if started else ""
    if is_held(bundle):
        return Parent("alive", host)
    if started is None:  # killed before its first event, or not even that: nothing says where
        return Parent("unknown")
    state = _state(bundle, started)
    return Parent("gone" if state == "unknown" and _has_finished(bundle) else state, host)


def this_pid_namespace() -> str:
    """Process numbers mean the same in processes that have the same one. Empty where the kernel does not say."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115  it names no path
    except OSError:
        return ""


def _started(bundle: Path) -> _Started | None:
    try:
        with os.fdopen(os.open(bundle / PARENT_EVENTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            line = file.readline(_FIRST_LINE_BYTES)
        return msgspec.json.decode(line, type=_Started)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _state(bundle: Path, started: _Started) -> Literal["alive", "gone", "unknown"]:
    """Of a parent that holds no lock that is seen from here."""
    boot_id = _boot_id()
    if not boot_id or not started.clock.boot_id:
        return "unknown"
    if boot_id == started.clock.boot_id:
        return "gone" if started.locked else _state_of_process(started)
    is_same_machine = started.clock.host == socket.gethostname() and started.clock.host not in _NO_NAME
    return "gone" if is_same_machine and not _was_written_since_boot(bundle) else "unknown"


def _state_of_process(started: _Started) -> Literal["alive", "gone", "unknown"]:
    """Look for the process by its number, on this machine, since it was started."""
    if not started.pid_namespace or started.pid_namespace != this_pid_namespace():
        return "unknown"
    begin_ns = _process_began_ns(started.clock.pid)
    if begin_ns is None:
        return "gone"
    # The kernel counts the time of processes through a suspended machine, events do not: today's difference is at
    # least that of then, so the parent itself is never taken for a later process.
    suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    return "alive" if begin_ns <= started.t_ns + suspended_ns else "gone"


def _process_began_ns(pid: int) -> int | None:
    """Since the machine was started. None for a process that is not there, or has ended and was not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _was_written_since_boot(bundle: Path) -> bool:
    """Then it is another machine of the same name that writes it."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    entries = (entry for folder in FOLDERS if (bundle / folder).is_dir() for entry in (bundle / folder).iterdir())
    return any(entry.lstat().st_mtime > booted for entry in entries)


def _has_finished(bundle: Path) -> bool:
    """A command that a cluster's queue started says so at its end, in a folder that names its run."""
    for folder in sorted((bundle.absolute().parent / DETACHED).glob("*")):
        with contextlib.suppress(OSError, BadInput, msgspec.DecodeError):
            begun = msgspec.json.decode(read_regular(folder / DETACHED_RUN, _MAX_RECORD_BYTES), type=Begun)
            if begun.run_id == bundle.name:
                return (folder / DETACHED_END).exists()
    return False


# Who is at work on a bundle. Its command holds the lock of `alive.py`. Agents that write into its folder share a lock
# of environment.json, which no run replaces. The kernel takes locks back when a process ends, however it ends.
# Whoever ends the run in the place of its command needs both alone.


@contextlib.contextmanager
def at_work(bundle: Path) -> Iterator[None]:
    """As an agent. A file system without locks is no error."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            file = stack.enter_context((bundle / ENVIRONMENT_FILE).open("rb"))
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def alone(bundle: Path) -> Iterator[None]:
    """Raises BundleInUse where another process is at work on it, or that cannot be seen."""
    with contextlib.ExitStack() as stack:
        for name, mode in ((PARENT_EVENTS, "ab"), (ENVIRONMENT_FILE, "r+b")):
            try:
                file = stack.enter_context((bundle / name).open(mode))  # to write: NFS gives no such lock to a reader
            except OSError as error:
                raise BadInput(f"cannot write the bundle {bundle}: {name}: {error.strerror}") from None
            _lock(file.fileno(), bundle)
        yield


def _lock(descriptor: int, bundle: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        whose = "its command, or what that started, is still at work"
        raise BundleInUse(f"{bundle.name} is in use: {whose}; it can be ended when that has stopped") from None
    except OSError as error:
        why = f"the file system has no locks ({error.strerror})"
        raise BundleInUse(f"it cannot be seen whether {bundle.name} is in use: {why}") from None
