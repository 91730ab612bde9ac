"""Runs in archives: packing, unpacking, and the two compressions."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import importlib
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec

from flagperf.bundle.bundle import broken_files, file_digests, read_bundle, unreadable_files
from flagperf.bundle.listing import RunHead, read_head
from flagperf.bundle.paths import FOLDERS, LABELS_FILE, MANIFEST_FILE, RUN_FILE, is_bundle_file
from flagperf.errors import BadInput, MissingPart
from flagperf.files import cannot_write, kind_of, making_folder, replacing
from flagperf.text import flagperf_command, pip_command

# --- compression: gzip, which every Python has, and zstd, where Python (3.14) or `zstandard` has it ------------------

Compression = Literal["gzip", "zstd"]

SUFFIXES: dict[str, Compression] = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}

GZIP_LEVEL, ZSTD_LEVEL = 6, 9
"""An event file takes 1/8 of its size with gzip and 1/10 with zstd; higher levels take minutes for a few per cent."""


def compression_of(path: Path, asked: Compression | None = None) -> Compression:
    """Return what was asked for, else the compression by the name. Raise BadInput for a name without either."""
    if asked is not None:
        return asked
    found = next((how for suffix, how in SUFFIXES.items() if path.name.lower().endswith(suffix)), None)
    if found is None:
        known = ", ".join(SUFFIXES)
        raise BadInput(f"the name {path.name} does not say how to compress; end it in {known}, or add --compression")
    return found


@contextlib.contextmanager
def compressing(file: IO[bytes], how: Compression) -> Iterator[IO[bytes]]:
    """Give a stream that writes to `file`, which stays open. The same content gives the same bytes."""
    stream: Any
    if how == "gzip":
        stream = gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=file, mtime=0)
    else:
        built_in, library = _zstd()
        if built_in is not None:
            stream = built_in.ZstdFile(file, "w", level=ZSTD_LEVEL)
        else:
            stream = library.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(file, closefd=False)
    with stream:
        yield stream


def decompressed(file: IO[bytes]) -> IO[bytes]:
    """Return the content of an archive. Its first bytes say how it is compressed, never its name."""
    head = file.read(512)
    file.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        built_in, library = _zstd()
        if built_in is not None:
            return cast("IO[bytes]", built_in.ZstdFile(file, "r"))
        found = library.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
        return cast("IO[bytes]", found)
    if head[257:262] == b"ustar":
        return file
    raise BadInput("it is not a tar archive (.tar, .tar.gz or .tar.zst)")


def _zstd() -> tuple[Any, Any]:
    """Return Python's own module, or the library, beside None."""
    for name in ("compression.zstd", "zstandard"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            return (module, None) if name != "zstandard" else (None, module)
    raise MissingPart(
        f"this Python has no zstd; install it with `{pip_command('install', 'flagperf[zstd]')}`, or use gzip (.tar.gz)"
    )


# --- packing: the same runs give the same bytes, with sorted names, no owner, and the time of each run ---------------
#
# Headers are written one by one (TarInfo.tobuf) in the plain form of ustar, so that unpacking needs to understand
# nothing else.

_LARGEST_USTAR = 8**11 - 1
"""Sizes above are written in the form of GNU tar, which every tar reads."""

_CHUNK = 1 << 20


def pack(
    bundles: Sequence[Path], archive: Path, how: Compression, *, labels: bool = True, unfinished: bool = False
) -> None:
    """Write `archive` at once or not at all. Raise BadInput for a run that cannot be passed on as it is."""
    runs = sorted(((read_head(bundle), bundle) for bundle in bundles), key=lambda run: run[0].id)
    ids = [head.id.casefold() for head, _ in runs]
    for head, bundle in runs:
        if ids.count(head.id.casefold()) > 1:
            raise BadInput(f"several of these runs have the id {head.id}, also {bundle}; pack one of them")
    for _, bundle in runs:
        _check_to_pack(bundle, unfinished=unfinished)
    if os.path.lexists(archive):
        raise BadInput(f"{archive} exists; remove it, or choose another file with -o")
    try:
        with replacing(archive) as file, compressing(file, how) as stream:
            for head, bundle in runs:
                _add_run(stream, bundle, head, labels=labels)
            stream.write(bytes(2 * tarfile.BLOCKSIZE))
    except OSError as error:
        source = Path(error.filename) if error.filename else archive
        where = "" if source.parent == archive.parent else f"{source}: "
        raise cannot_write(f"cannot write {archive}: {where}{error.strerror}; see -o", error) from None


def _check_to_pack(bundle: Path, *, unfinished: bool) -> None:
    problems = unreadable_files(bundle)
    if not problems:
        is_finished = (bundle / MANIFEST_FILE).exists()
        if not is_finished and not unfinished:
            raise BadInput(
                f"{bundle.name} has no {MANIFEST_FILE}: it is running, or its parent was killed, so that nobody could "
                "check what arrives; --unfinished packs it anyway"
            )
        problems = broken_files(bundle, file_digests(bundle)) if is_finished else []
    names = sorted(path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file())
    problems += [f"{name} is not a file of a bundle" for name in names if not is_bundle_file(name)]
    if problems:
        command = flagperf_command("runs", "verify", bundle)
        raise BadInput(f"{bundle.name} is not packed: {problems[0]}; see `{command}`")


def _add_run(stream: IO[bytes], bundle: Path, head: RunHead, *, labels: bool) -> None:
    try:
        created = datetime.datetime.fromisoformat(head.created.replace("Z", "+00:00"))
        seconds = max(0, int(created.timestamp()))
    except (ValueError, OverflowError, OSError):
        seconds = 0
    inside = sorted(bundle.rglob("*"), key=lambda path: path.relative_to(bundle).parts)
    for path in (bundle, *inside):
        inner_name = path.relative_to(bundle).as_posix()
        name = f"{head.id}/{inner_name}"
        if path.is_dir():
            _add_header(stream, tarfile.DIRTYPE, name.removesuffix("/."), 0, seconds)
        elif labels or inner_name != str(LABELS_FILE):
            with path.open("rb") as file:
                size = left = os.fstat(file.fileno()).st_size  # the files of a running run still grow
                _add_header(stream, tarfile.REGTYPE, name, size, seconds)
                while left:
                    chunk = file.read(min(left, _CHUNK))
                    if not chunk:
                        raise BadInput(
                            f"{path} became shorter while it was packed; pack again when nothing writes to it"
                        )
                    stream.write(chunk)
                    left -= len(chunk)
                stream.write(bytes(-size % tarfile.BLOCKSIZE))


def _add_header(stream: IO[bytes], kind: bytes, name: str, size: int, seconds: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.mtime = kind, size, seconds
    entry.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    is_large = size > _LARGEST_USTAR
    try:
        header = entry.tobuf(tarfile.GNU_FORMAT if is_large else tarfile.USTAR_FORMAT, "utf-8", "strict")
        stream.write(header)
    except (ValueError, UnicodeError) as error:
        raise BadInput(f"{name} cannot be packed: {error}") from None


# --- unpacking: nothing of an archive is believed ---------------------------------------------------------------------
#
# Every entry has to be a plain file or folder with a name that a bundle has. Everything is written into a temporary
# folder beside the runs, checked there against its MANIFEST, and only then renamed into place.
#
# The blocks of the archive are read here one by one, and not by tarfile's own loop, which follows extended headers of
# any length before it can be asked whether they are wanted.

MAX_ENTRIES = 100_000
"""A run on 8,000 cards has 25,000."""

MAX_BYTES = 64 << 30

MAX_RATIO = 250
"""Content over archive. Event files reach 30, a log of one repeated line more."""

FREE_BYTES = 64 << 20
"""So much content is unpacked whatever its ratio."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")

_BLOCK = tarfile.BLOCKSIZE

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
    """Unpack all runs of the archive, or none. `max_bytes` replaces the limits of size and ratio."""
    if not os.path.lexists(archive):
        raise BadInput(f"there is no archive {archive}")
    if not archive.is_file():
        raise BadInput(f"{archive} is {kind_of(archive)}, not an archive")
    moved: list[str] = []
    try:
        with making_folder(runs_dir), tempfile.TemporaryDirectory(dir=runs_dir, prefix=".unpack-") as folder:
            _extract(archive, Path(folder), max_bytes)
            found = sorted(Path(folder).iterdir())
            runs = tuple(_checked(run, runs_dir / run.name, unfinished=unfinished) for run in found)
            for run in runs:
                if run.state == "unpacked":
                    (Path(folder) / run.id).rename(run.path)
                    moved.append(run.path)
            return runs
    except BaseException as error:
        for path in moved:
            shutil.rmtree(path, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        where = f" ({error.filename})" if error.filename else ""
        raise cannot_write(f"cannot unpack into {runs_dir}: {error.strerror}{where}; see --runs-dir", error) from None


class _Content:
    """Reads exactly as many bytes as asked for, and no more than the limit in total."""

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
        """Check that only zeros follow the end. Reading them also checks what compression says of the whole content."""
        while rest := self._stream.read(_BLOCK):
            self._done += len(rest)
            if any(rest) or self._done > self._limit:
                raise BadInput("something follows the end of the archive")


def _extract(archive: Path, folder: Path, max_bytes: int | None) -> None:
    """Write all entries into the folder. Raise BadInput for an archive that is damaged or that has anything else."""
    seen: dict[str, str] = {}
    try:
        with archive.open("rb") as file:
            usual = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * os.fstat(file.fileno()).st_size))
            content = _Content(decompressed(file), usual if max_bytes is None else max_bytes)
            for entry in _entries(content):
                name = _checked_name(entry)
                other = seen.get(name.casefold())
                if other is not None:
                    raise BadInput(
                        f"it has {name} twice" if other == name else f"{other} and {name} differ in case only"
                    )
                if len(seen) == MAX_ENTRIES:
                    raise BadInput(f"it has more than {MAX_ENTRIES:,} entries")
                seen[name.casefold()] = name
                target = folder / name
                (target if entry.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
                if entry.isreg():
                    with target.open("xb") as file_of_run:
                        for start in range(0, entry.size, _CHUNK):
                            file_of_run.write(content.read(min(_CHUNK, entry.size - start)))
                    content.read(-entry.size % _BLOCK)
            content.check_rest()
        if not seen:
            raise BadInput("it has no run")
    except BadInput as error:
        raise BadInput(f"{archive} is not unpacked: {error}") from None
    except Exception as error:
        is_damage = isinstance(error, EOFError | zlib.error | gzip.BadGzipFile) or type(error).__name__ == "ZstdError"
        if not is_damage:
            raise
        raise BadInput(f"{archive} is damaged: {str(error) or type(error).__name__}") from None


def _entries(content: _Content) -> Iterator[tarfile.TarInfo]:
    while any(block := content.read(_BLOCK)):
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError, ValueError) as error:
            raise BadInput(f"it is not a tar archive, or it is damaged: {error}") from None
        if entry.type not in _PLAIN:
            kind = _KINDS.get(entry.type, f"an entry of type {entry.type!r}")
            raise BadInput(f"{entry.name} is {kind}; `runs pack` writes plain files and folders alone")
        if entry.size < 0 or (entry.isdir() and entry.size):
            raise BadInput(f"{entry.name} has an impossible size")
        yield entry


def _checked_name(entry: tarfile.TarInfo) -> str:
    """Return the name relative to the runs folder.

    It is the id of a run and a name that a bundle has, so neither an absolute path nor `..` passes.
    """
    run, _, inside = entry.name.rstrip("/").partition("/")
    is_known = inside in ("", *map(str, FOLDERS)) if entry.isdir() else is_bundle_file(inside)
    if not _RUN_ID.fullmatch(run) or not is_known or any(part in ("", "..") for part in (run, *inside.split("/")[1:])):
        raise BadInput(f"{entry.name!r} is not the name of a file in the bundle of a run")
    return f"{run}/{inside}".rstrip("/")


def _checked(found: Path, target: Path, *, unfinished: bool) -> Unpacked:
    problem = next(_problems(found, unfinished=unfinished), "")
    if problem:
        raise BadInput(f"{found.name} is not unpacked: {problem}")
    is_finished = (found / MANIFEST_FILE).exists()
    if not os.path.lexists(target):
        return Unpacked(found.name, str(target), "unpacked", is_finished)
    try:
        is_whole = is_finished and not unreadable_files(target) and not broken_files(target, file_digests(target))
        is_same = is_whole and (target / MANIFEST_FILE).read_bytes() == (found / MANIFEST_FILE).read_bytes()
    except OSError:
        is_same = False
    if not is_same:
        raise BadInput(f"{target} exists and has other content; move it away, or choose another folder with --runs-dir")
    return Unpacked(found.name, str(target), "already there")


def _problems(found: Path, *, unfinished: bool) -> Iterator[str]:
    """Yield what is wrong with an unpacked run. A later check may rely on the ones before it."""
    yield from unreadable_files(found)
    if not (found / RUN_FILE).exists():
        yield f"it has no {RUN_FILE}"
    if (found / MANIFEST_FILE).exists():
        yield from broken_files(found, file_digests(found))
    elif not unfinished:
        yield f"it has no {MANIFEST_FILE}: the run was never finished; --unfinished unpacks it anyway"
    try:
        recorded = read_bundle(found).run.id
    except BadInput as error:
        yield str(error).replace(str(found), found.name)
        return
    if recorded != found.name:
        yield f"its run.json is of run {recorded}"
