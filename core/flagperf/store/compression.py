"""Compression of archives: gzip, which every Python has, and zstd, where Python (3.14) or `zstandard` has it."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, cast

from flagperf.commands import pip_command
from flagperf.errors import BadInput, MissingPart

Compression = Literal["gzip", "zstd"]

SUFFIXES: dict[str, Compression] = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}
GZIP_LEVEL, ZSTD_LEVEL = 6, 9
"""An event file takes 1/8 of its size with gzip and 1/10 with zstd; higher levels take minutes for a few per cent."""

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_TAR_MAGIC = (b"ustar", 257)


def compression_of(path: Path, asked: Compression | None = None) -> Compression:
    """What was asked for, else by the name. Raises BadInput for a name that says neither."""
    if asked is not None:
        return asked
    found = next((how for suffix, how in SUFFIXES.items() if path.name.lower().endswith(suffix)), None)
    if found is None:
        known = ", ".join(SUFFIXES)
        raise BadInput(f"the name {path.name} does not say how to compress; end it in {known}, or add --compression")
    return found


@contextlib.contextmanager
def compressing(file: IO[bytes], how: Compression) -> Iterator[IO[bytes]]:
    """A stream that writes to `file`, which stays open. The same content gives the same bytes."""
    if how == "gzip":
        with gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=file, mtime=0) as stream:
            yield cast("IO[bytes]", stream)
    else:
        with _zstd_writer(file) as stream:
            yield stream


def decompressed(file: IO[bytes]) -> IO[bytes]:
    """The content of an archive, recognised by its first bytes and never by its name."""
    head = file.read(512)
    file.seek(0)
    how = next((how for magic, how in _MAGIC.items() if head.startswith(magic)), None)
    if how == "gzip":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
    if how == "zstd":
        return _zstd_reader(file)
    word, place = _TAR_MAGIC
    if head[place : place + len(word)] == word:
        return file
    raise BadInput("it is no tar archive, neither plain nor compressed with gzip or zstd")


def damage_of(error: Exception) -> str:
    """What a stream of `decompressed` raised, in words. Empty for an error that is not about its content."""
    is_ours = isinstance(error, EOFError | zlib.error | gzip.BadGzipFile) or type(error).__name__ == "ZstdError"
    return str(error) or type(error).__name__ if is_ours else ""


def _zstd_writer(file: IO[bytes]) -> Any:
    built_in, library = _zstd()
    if built_in is not None:
        return built_in.ZstdFile(file, "w", level=ZSTD_LEVEL)
    return library.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(file, closefd=False)


def _zstd_reader(file: IO[bytes]) -> IO[bytes]:
    built_in, library = _zstd()
    if built_in is not None:
        return cast("IO[bytes]", built_in.ZstdFile(file, "r"))
    found = library.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    return cast("IO[bytes]", found)


def _zstd() -> tuple[Any, Any]:
    """Python's own module, or the library."""
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            return (module, None) if name != "zstandard" else (None, module)
    raise MissingPart(
        f"this Python has no zstd; install it with `{pip_command('install', 'flagperf[zstd]')}`, or use gzip (.tar.gz)"
    )
