"""PartsSender: what is added to this node's files of a bundle goes to the command as it is added. Whatever happens to
the node, the connection or the allocation, the command has what was sent by then."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from flagperf.spec import FilePart, FilesComplete
from flagperf.store.paths import FOLDERS

CHUNK_BYTES = 1 << 18


class PartsSender:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sent: dict[str, int] = {}

    def new_parts(self) -> Iterator[FilePart]:
        for name, path in self._files():
            yield from self._new_parts_of(name, path)

    def complete(self) -> FilesComplete:
        """After the last part: what the files are, so that the command can tell that it has them."""
        return FilesComplete({name: _digest(path) for name, path in self._files()})

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder in FOLDERS:
            for path in sorted((self._directory / folder).iterdir()):
                if path.is_file() and not path.is_symlink():
                    yield str(path.relative_to(self._directory)), path

    def _new_parts_of(self, name: str, path: Path) -> Iterator[FilePart]:
        size, sent = path.stat().st_size, self._sent.get(name, -1)
        if sent < 0 or size < sent:  # new, or cut: a line that was torn when the probe died
            self._sent[name] = min(size, max(sent, 0))
            yield FilePart(name, self._sent[name])
        with path.open("rb") as file:
            file.seek(self._sent[name])
            while content := file.read(CHUNK_BYTES):
                yield FilePart(name, self._sent[name], content)
                self._sent[name] += len(content)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while content := file.read(1 << 20):
            digest.update(content)
    return digest.hexdigest()
