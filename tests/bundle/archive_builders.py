"""Archives with entries that `runs pack` never writes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from recorded_bundles import FOLDER, IDS

RECORDED = FOLDER
RUN = IDS["distilbert"]


def recorded_files(run: str = RUN) -> dict[str, bytes]:
    """Name in the archive -> content."""
    files = sorted(path for path in (RECORDED / run).rglob("*") if path.is_file())
    return {f"{run}/{path.relative_to(RECORDED / run).as_posix()}": path.read_bytes() for path in files}


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, target
    return info.tobuf(tarfile.USTAR_FORMAT if size < 8**11 else tarfile.GNU_FORMAT)


def file_entry(name: str, content: bytes) -> bytes:
    return entry(name, size=len(content)) + content + bytes(-len(content) % 512)


def archive_of(path: Path, entries: Iterable[bytes]) -> Path:
    path.write_bytes(gzip.compress(b"".join(entries) + bytes(1024)))
    return path


def with_files(path: Path, files: Mapping[str, bytes], *more: bytes) -> Path:
    return archive_of(path, [*(file_entry(name, content) for name, content in files.items()), *more])


def renamed(files: Mapping[str, bytes], run: str) -> dict[str, bytes]:
    """The same files as another run, with a MANIFEST of its own that is right."""
    found = {name.replace(RUN, run): content for name, content in files.items()}
    content = json.loads(found[f"{run}/run.json"])
    content["id"] = run
    found[f"{run}/run.json"] = json.dumps(content).encode()
    listed = {name.partition("/")[2]: each for name, each in found.items() if not name.endswith("MANIFEST")}
    lines = [f"{hashlib.sha256(each).hexdigest()}  {name}\n" for name, each in sorted(listed.items())]
    return {**found, f"{run}/MANIFEST": "".join(lines).encode()}


def python_tar(path: Path, mode: str = "w:gz", form: int = tarfile.PAX_FORMAT, name: str = "") -> Path:
    """As somebody makes one by hand."""
    with tarfile.open(path, mode, format=form) as tar:  # type: ignore[call-overload]
        for member, content in recorded_files().items():
            info = tarfile.TarInfo(name + member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path
