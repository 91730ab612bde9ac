"""Packing runs into one archive. The same runs give the same bytes: sorted names, no owner, and the time of each run.

Headers are written one by one (TarInfo.tobuf) in the plain form of ustar, so that `unpacking` needs to understand
nothing else.
"""

from __future__ import annotations

import datetime
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from flagperf.commands import flagperf_command
from flagperf.errors import BadInput
from flagperf.files import cannot_write, replacing
from flagperf.store.bundle import broken_files, read_json, unreadable_files
from flagperf.store.compression import Compression, compressing
from flagperf.store.paths import LABELS_FILE, MANIFEST_FILE, RUN_FILE, is_bundle_file
from flagperf.store.witness import file_digests

_LARGEST_USTAR = 8**11 - 1
"""Sizes above are written in the form of GNU tar, which every tar reads."""
_CHUNK = 1 << 20


class _Identity(msgspec.Struct, frozen=True):
    id: str
    created: str


def pack(
    bundles: Sequence[Path], archive: Path, how: Compression, *, labels: bool = True, unfinished: bool = False
) -> None:
    """Write `archive` at once or not at all. Raises BadInput for a run that cannot be passed on as it is."""
    runs = _identified(bundles)
    for bundle, _ in runs:
        _check(bundle, unfinished=unfinished)
    if os.path.lexists(archive):
        raise BadInput(f"{archive} exists; remove it, or choose another file with -o")
    try:
        _write(archive, how, runs, labels=labels)
    except OSError as error:
        source = Path(error.filename) if error.filename else archive
        where = "" if source.parent == archive.parent else f"{source}: "
        raise cannot_write(f"cannot write {archive}: {where}{error.strerror}; see -o", error) from None


def _identified(bundles: Sequence[Path]) -> list[tuple[Path, _Identity]]:
    found = [(bundle, read_json(bundle / RUN_FILE, _Identity)) for bundle in bundles]
    ids = [identity.id.casefold() for _, identity in found]
    for bundle, identity in found:
        if ids.count(identity.id.casefold()) > 1:
            raise BadInput(f"several of these runs have the id {identity.id}, also {bundle}; pack one of them")
    return sorted(found, key=lambda run: run[1].id)


def _check(bundle: Path, *, unfinished: bool) -> None:
    problems = unreadable_files(bundle)
    if not problems:
        is_finished = (bundle / MANIFEST_FILE).exists()
        if not is_finished and not unfinished:
            raise BadInput(
                f"{bundle.name} has no {MANIFEST_FILE}: it is running, or its parent was killed, so that nobody could "
                "check what arrives; --unfinished packs it all the same"
            )
        problems = broken_files(bundle, file_digests(bundle)) if is_finished else []
    problems += [f"{name} is not a file of a bundle" for name in _files(bundle) if not is_bundle_file(name)]
    if problems:
        command = flagperf_command("runs", "verify", bundle)
        raise BadInput(f"{bundle.name} is not packed: {problems[0]}; see `{command}`")


def _files(bundle: Path) -> list[str]:
    return sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file())


def _write(archive: Path, how: Compression, runs: Sequence[tuple[Path, _Identity]], *, labels: bool) -> None:
    with replacing(archive) as file, compressing(file, how) as stream:
        for bundle, identity in runs:
            _add_run(stream, bundle, identity, labels=labels)
        stream.write(bytes(2 * tarfile.BLOCKSIZE))


def _add_run(stream: IO[bytes], bundle: Path, identity: _Identity, *, labels: bool) -> None:
    seconds = _seconds(identity.created)
    for entry in _entries(bundle):
        name = entry.relative_to(bundle).as_posix()
        if entry.is_dir():
            _add(stream, tarfile.DIRTYPE, f"{identity.id}/{name}".removesuffix("/."), 0, seconds)
        elif labels or name != str(LABELS_FILE):
            _add_file(stream, entry, f"{identity.id}/{name}", seconds)


def _entries(bundle: Path) -> Iterator[Path]:
    yield bundle
    yield from sorted(bundle.rglob("*"), key=lambda path: path.relative_to(bundle).parts)


def _add_file(stream: IO[bytes], path: Path, name: str, seconds: int) -> None:
    """So much of it as it has now: the files of a running run still grow."""
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size
        _add(stream, tarfile.REGTYPE, name, left, seconds)
        padding = -left % tarfile.BLOCKSIZE
        while left:
            chunk = file.read(min(left, _CHUNK))
            if not chunk:
                raise BadInput(f"{path} became shorter while it was packed; pack again when nothing writes to it")
            stream.write(chunk)
            left -= len(chunk)
        stream.write(bytes(padding))


def _add(stream: IO[bytes], kind: bytes, name: str, size: int, seconds: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.mtime = kind, size, seconds
    entry.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    try:
        is_large = size > _LARGEST_USTAR
        header = entry.tobuf(tarfile.GNU_FORMAT if is_large else tarfile.USTAR_FORMAT, "utf-8", "strict")
        stream.write(header)
    except (ValueError, UnicodeError) as error:
        raise BadInput(f"{name} cannot be packed: {error}") from None


def _seconds(created: str) -> int:
    try:
        return max(0, int(datetime.datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()))
    except (ValueError, OverflowError, OSError):
        return 0
