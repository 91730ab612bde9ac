"""Reading untrusted files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from flagperf.errors import BadInput

MEBIBYTE = 1 << 20


def read_regular(path: Path, max_bytes: int, *, follow_links: bool = False) -> bytes:
    """The content of a regular file. Pipes and devices are never opened: reading them might never end. Neither are
    links, unless `follow_links` (a user's own file may be a link to a regular file).

    Raises BadInput for those and for files larger than `max_bytes`, OSError if the file cannot be opened.
    """
    status = path.stat() if follow_links else path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"{path} is {_kind(status.st_mode)}, not a regular file; it is not read")
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    with os.fdopen(os.open(path, flags), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            limit = f"more than the limit of {max_bytes // MEBIBYTE} MiB"
            raise BadInput(f"{path} has {size // MEBIBYTE} MiB, {limit}; it is not read")
        return file.read(size)  # not max_bytes: read() allocates what it is asked for


def exists(path: Path) -> bool:
    """Path.exists raises an error for a name that is too long for the system."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def kind_of(path: Path) -> str:
    return _kind(path.lstat().st_mode)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    return kinds.get(stat.S_IFMT(mode), "a device")
