"""Unpacking runs that came from somebody else. Nothing of an archive is believed: every entry has to be a plain file or
folder with a name that a bundle has, everything is written into a temporary folder beside the runs and checked there
against its MANIFEST, and only then renamed into place.

The blocks of the archive are read here one by one, and not by tarfile's own loop, which follows extended headers of any
length before it can be asked whether they are wanted.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal

import msgspec

from flagperf.errors import BadInput
from flagperf.files import cannot_write, kind_of, making_folder
from flagperf.store.bundle import broken_files, read_bundle, unreadable_files
from flagperf.store.compression import damage_of, decompressed
from flagperf.store.paths import FOLDERS, MANIFEST_FILE, RUN_FILE, is_bundle_file
from flagperf.store.witness import file_digests

MAX_ENTRIES = 100_000
"""A run on 8,000 cards has 25,000."""
MAX_BYTES = 64 << 30
MAX_RATIO = 250
"""Content over archive. Event files reach 30, a log of one repeated line more."""
FREE_BYTES = 64 << 20
"""So much content is unpacked whatever its ratio."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")
_BLOCK = tarfile.BLOCKSIZE
_CHUNK = 1 << 20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
"""TarInfo.isreg is true for a sparse file too."""
_KINDS = {
    tarfile.LNKTYPE: "a link", tarfile.SYMTYPE: "a link", tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe", tarfile.GNUTYPE_SPARSE: "a sparse file", tarfile.GNUTYPE_LONGNAME: "a long name",
    tarfile.GNUTYPE_LONGLINK: "a long link", tarfile.XHDTYPE: "an extended header",
    tarfile.XGLTYPE: "an extended header", tarfile.SOLARIS_XHDTYPE: "an extended header",
}  # fmt: skip


class Unpacked(msgspec.Struct, frozen=True):
    id: str
    path: str
    state: Literal["unpacked", "already there"]
    """`already there`: the same run with the same content, which was left as it is."""
    finished: bool = True
    """False for a run without MANIFEST: nothing shows that it arrived as it was."""


def unpack(
    archive: Path, runs_dir: Path, *, max_bytes: int | None = None, unfinished: bool = False
) -> tuple[Unpacked, ...]:
    """All runs of the archive, or none. `max_bytes` replaces the limits of size and ratio."""
    if not os.path.lexists(archive):
        raise BadInput(f"there is no archive {archive}")
    if not archive.is_file():
        raise BadInput(f"{archive} is {kind_of(archive)}, not an archive")
    try:
        with making_folder(runs_dir), tempfile.TemporaryDirectory(dir=runs_dir, prefix=".unpack-") as folder:
            names = _extract(archive, Path(folder), max_bytes)
            checked = [_checked(Path(folder) / name, runs_dir / name, unfinished=unfinished) for name in names]
            _move(Path(folder), checked)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise cannot_write(f"cannot unpack into {runs_dir}: {error.strerror}{where}; see --runs-dir", error) from None
    return tuple(checked)


# --- into the temporary folder --------------------------------------------------------------------------------------


def _extract(archive: Path, folder: Path, max_bytes: int | None) -> list[str]:
    """The names of the runs."""
    try:
        with archive.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            usual = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * size))
            content = _Content(decompressed(file), usual if max_bytes is None else max_bytes)
            return _extract_entries(content, folder)
    except BadInput as error:
        raise BadInput(f"{archive} is not unpacked: {error}") from None
    except Exception as error:
        damage = damage_of(error)
        if not damage:
            raise
        raise BadInput(f"{archive} is damaged: {damage}") from None


class _Content:
    """Reads exactly what is asked for, and no more than the limit in total."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._done = 0

    def read(self, size: int) -> bytes:
        self._done += size
        if self._done > self._limit:
            raise BadInput(
                f"it has more than {self._limit / (1 << 20):,.0f} MiB of content, the limit for an archive of its "
                "size; --max-gib raises it, if you trust where it comes from"
            )
        found = b""
        while len(found) < size and (more := self._stream.read(size - len(found))):
            found += more
        if len(found) < size:
            raise BadInput("it ends early: it is not complete")
        return found

    def check_rest(self) -> None:
        """Behind the end there are zeros. Reading them also checks what compression says of the whole content."""
        while rest := self._stream.read(_BLOCK):
            self._done += len(rest)
            if any(rest) or self._done > self._limit:
                raise BadInput("something follows the end of the archive")


def _extract_entries(content: _Content, folder: Path) -> list[str]:
    seen: dict[str, str] = {}
    for entry in _headers(content):
        name = _checked_name(entry)
        other = seen.get(name.casefold())
        if other is not None:
            raise BadInput(f"it has {name} twice" if other == name else f"{other} and {name} differ in case only")
        if len(seen) == MAX_ENTRIES:
            raise BadInput(f"it has more than {MAX_ENTRIES:,} entries")
        seen[name.casefold()] = name
        target = folder / name
        (target if entry.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
        if entry.isreg():
            _copy(content, entry.size, target)
    content.check_rest()
    runs = sorted(path.name for path in folder.iterdir())
    if not runs:
        raise BadInput("it has no run")
    return runs


def _headers(content: _Content) -> Iterator[tarfile.TarInfo]:
    while any(block := content.read(_BLOCK)):
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError, ValueError) as error:
            raise BadInput(f"it is no tar archive, or is damaged: {error}") from None
        if entry.type not in _PLAIN:
            kind = _KINDS.get(entry.type, f"an entry of type {entry.type!r}")
            raise BadInput(f"{entry.name} is {kind}; `runs pack` writes plain files and folders alone")
        if entry.size < 0 or (entry.isdir() and entry.size):
            raise BadInput(f"{entry.name} has an impossible size")
        yield entry


def _checked_name(entry: tarfile.TarInfo) -> str:
    """Relative to the runs folder. A run id, then a name that a bundle has: neither an absolute path nor `..` is."""
    run, _, inside = entry.name.rstrip("/").partition("/")
    is_known = inside in ("", *map(str, FOLDERS)) if entry.isdir() else is_bundle_file(inside)
    if not _RUN_ID.fullmatch(run) or not is_known or any(part in ("", "..") for part in (run, *inside.split("/")[1:])):
        raise BadInput(f"{entry.name!r} is not the name of a file in the bundle of a run")
    return f"{run}/{inside}".rstrip("/")


def _copy(content: _Content, size: int, target: Path) -> None:
    with target.open("xb") as file:
        left = size
        while left:
            chunk = content.read(min(left, _CHUNK))
            file.write(chunk)
            left -= len(chunk)
    content.read(-size % _BLOCK)


# --- checked, and moved to its place --------------------------------------------------------------------------------


def _checked(found: Path, target: Path, *, unfinished: bool) -> Unpacked:
    problem = next(_problems(found, unfinished=unfinished), "")
    if problem:
        raise BadInput(f"{found.name} is not unpacked: {problem}")
    is_finished = (found / MANIFEST_FILE).exists()
    if not os.path.lexists(target):
        return Unpacked(found.name, str(target), "unpacked", is_finished)
    if not is_finished or not _is_same(found, target):
        raise BadInput(f"{target} exists and has other content; move it away, or choose another folder with --runs-dir")
    return Unpacked(found.name, str(target), "already there")


def _problems(found: Path, *, unfinished: bool) -> Iterator[str]:
    """Each is looked for only where there was none before."""
    yield from unreadable_files(found)
    if not (found / RUN_FILE).exists():
        yield f"it has no {RUN_FILE}"
    if (found / MANIFEST_FILE).exists():
        yield from broken_files(found, file_digests(found))
    elif not unfinished:
        yield f"it has no {MANIFEST_FILE}: the run was never finished; --unfinished unpacks it all the same"
    try:
        recorded = read_bundle(found).run.id
    except BadInput as error:
        yield str(error).replace(str(found), found.name)
        return
    if recorded != found.name:
        yield f"its run.json is of run {recorded}"


def _is_same(found: Path, target: Path) -> bool:
    """Whether the run that is there is whole, and has the MANIFEST of the one that came."""
    try:
        is_whole = not unreadable_files(target) and not broken_files(target, file_digests(target))
        return is_whole and (target / MANIFEST_FILE).read_bytes() == (found / MANIFEST_FILE).read_bytes()
    except OSError:
        return False


def _move(folder: Path, runs: Sequence[Unpacked]) -> None:
    """All of them, or none."""
    moved: list[str] = []
    try:
        for run in runs:
            if run.state == "unpacked":
                (folder / run.id).rename(run.path)
                moved.append(run.path)
    except BaseException:
        for path in moved:
            shutil.rmtree(path, ignore_errors=True)
        raise
