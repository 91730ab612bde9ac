"""Reading untrusted files; files and folders that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flagperf.errors import BadInput, BundleFailed, FlagPerfError

MEBIBYTE = 1 << 20
_OF_A_PLACE = frozenset(
    {
        errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT,
        errno.ENOTDIR, errno.EPERM, errno.EROFS,
    }
)  # fmt: skip


def cannot_write(what: str, error: OSError) -> FlagPerfError:
    """`what` is the message. A place that cannot be written to is bad input: whoever named it can name another. A disk
    that is full or fails is not."""
    return BadInput(what) if error.errno in _OF_A_PLACE else BundleFailed(what)


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


def sha256_of(path: Path) -> str:
    import hashlib  # lazy: most commands hash nothing

    digest = hashlib.sha256()
    with path.open("rb") as file:
        while content := file.read(MEBIBYTE):
            digest.update(content)
    return digest.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` at once when it is complete. After an error it is gone."""
    import tempfile  # lazy: most commands write nothing

    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def making_folder(path: Path) -> Iterator[None]:
    """Makes it, and its parents. Where an error follows, those that were made are removed again, if they are empty."""
    if exists(path) and not is_folder(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    missing = [folder for folder in (path, *path.parents) if not exists(folder)]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


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
