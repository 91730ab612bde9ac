"""Who is at work on a bundle. Its command holds the lock of `alive.py`. Agents that write into its folder share a lock
of environment.json, which no run replaces. The kernel takes locks back when a process ends, however it ends. Whoever
ends the run in the place of its command needs both alone."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from flagperf.errors import BadInput, BundleInUse
from flagperf.store.paths import ENVIRONMENT_FILE, PARENT_EVENTS


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
