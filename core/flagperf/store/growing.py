"""GrowingFile: an event file that is still written, read from where the last look ended."""

from __future__ import annotations

from pathlib import Path

from flagperf.errors import BadInput
from flagperf.events import AnyEvent, decode_events

_HEAD_BYTES = 1 << 16
"""How a file begins is always read: who writes it, and how many steps are planned."""


class GrowingFile:
    """Reads the whole lines that were added since the last call. Of more than `most_bytes` at once, if that is given,
    only the end: whoever comes late to a long run need not read all of it."""

    def __init__(self, path: Path, most_bytes: int | None = None) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._offset = 0

    def new_events(self) -> tuple[AnyEvent, ...]:
        """None where the file is damaged or cannot be read: whoever reads the record reports it, progress goes on."""
        if not self._path.is_file():  # what is no file (a pipe) might never end
            return ()
        try:
            lines = self._new_lines()
            return decode_events(lines, str(self._path)).events
        except (OSError, BadInput):
            return ()

    def _new_lines(self) -> list[bytes]:
        with self._path.open("rb") as file:
            added = file.seek(0, 2) - self._offset
            if self._most_bytes is None or added <= self._most_bytes:
                return self._whole_lines(file.seek(self._offset), file.read())
            head = b""
            if self._offset == 0:
                file.seek(0)
                head = file.read(_HEAD_BYTES)
                head = head[: head.rfind(b"\n") + 1]
            end = file.seek(self._offset + added - self._most_bytes)
            content = file.read()
            torn = content.find(b"\n") + 1
            return [*head.splitlines(keepends=True), *self._whole_lines(end + torn, content[torn:])]

    def _whole_lines(self, begin: int, content: bytes) -> list[bytes]:
        whole = content[: content.rfind(b"\n") + 1]
        self._offset = begin + len(whole)
        return whole.splitlines(keepends=True)
