"""Reading untrusted files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from flagperf.errors import BadInput

MEBIBYTE = 1 << 20


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The content of a regular file. Links, pipes and devices are never opened: reading them might never end.

    Raises BadInput for those and for files larger than `max_bytes`, OSError if the file cannot be opened.
    """
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise BadInput(f"{path} is {kind_of(path)}, not a regular file; it is not read")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            limit = f"more than the limit of {max_bytes // MEBIBYTE} MiB"
            raise BadInput(f"{path} has {size // MEBIBYTE} MiB, {limit}; it is not read")
        return file.read(max_bytes)


def kind_of(path: Path) -> str:
    mode = os.lstat(path).st_mode
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    return kinds.get(stat.S_IFMT(mode), "a device")
