"""stdout and stderr whose writes never raise.

In Python a failed write raises an exception: in the middle of a run whose reader has left (`| head`), and again while
the interpreter shuts down. Here the first error is kept, the command goes on, and `main` reports it once, at the end.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from typing import Any, TextIO


class LastingStream(io.RawIOBase):
    """A file descriptor to which writing never raises. `error` is why the first write failed that did."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.error: OSError | None = None

    def write(self, data: Any, /) -> int:
        while self.error is None:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:  # another process that shares it made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def make_streams_last() -> LastingStream:
    """Replace sys.stdout and sys.stderr; gives back what is under stdout."""
    for descriptor in range(3):
        _occupy(descriptor)
    stdout, stderr = LastingStream(1), LastingStream(2)
    sys.stdout, sys.stderr = _text(stdout, sys.stdout, "strict"), _text(stderr, sys.stderr, "backslashreplace")
    return stdout


def loss_of_output(stdout: LastingStream) -> str:
    """What kept output from being written, empty where nothing did. A reader that has left wanted no more."""
    sys.stdout.flush()
    if stdout.error is None or stdout.error.errno == errno.EPIPE:
        return ""
    return "it is closed" if stdout.error.errno == errno.EBADF else str(stdout.error.strerror)


def _occupy(descriptor: int) -> None:
    """The next opened file would take the number of a closed standard stream (`>&-`). Read-only: writes still fail."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)


def _text(raw: LastingStream, before: TextIO | None, errors: str) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors=(before.errors if before else None) or errors,
        line_buffering=raw.fileno() == 2 or raw.isatty(),
    )
