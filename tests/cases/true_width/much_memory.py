"""For tests that take half of a machine's memory: one at a time, however many processes pytest has."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def much_memory() -> Iterator[None]:
    """Waits for its turn. The kernel ends the turn with the process, however that ends."""
    path = Path(tempfile.gettempdir()) / f"flagperf-tests-much-memory-{os.getuid()}"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
