"""A run's folder. Files are replaced as a whole; MANIFEST comes last, so a bundle without one was never finished."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from flagperf.errors import BadInput, BundleFailed
from flagperf.events import read_all, read_events
from flagperf.events.files import EventFile
from flagperf.metrics import Record
from flagperf.spec import NodeFacts
from flagperf.store.run import STORE_SCHEMA, RecordedRun, Run

RUN_FILE, ENVIRONMENT_FILE, MANIFEST_FILE = "run.json", "environment.json", "MANIFEST"
PARENT_EVENTS = Path("events") / "parent.jsonl"


def create_bundle(runs_dir: Path, run: Run, nodes: tuple[NodeFacts, ...]) -> Path:
    """Make the folder of a run that is about to start."""
    path = runs_dir / run.id
    try:
        for folder in ("events", "samples", "logs"):
            (path / folder).mkdir(parents=True)
        _write_atomically(path / ENVIRONMENT_FILE, _pretty(nodes))
        _write_atomically(path / RUN_FILE, _pretty(run))
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise BadInput(f"cannot write the bundle {path}: {error.strerror}; choose another --runs-dir") from None
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """While a bundle is written: what the disk refuses becomes one message."""
    try:
        yield
    except OSError as error:
        why = error.strerror if path.is_dir() else "it was removed during the run"
        advice = "what is there is no complete run; make room, or choose another --runs-dir"
        raise BundleFailed(f"cannot write the bundle {path}: {why}; {advice}") from None


def check_writable(runs_dir: Path) -> None:
    """Before anything is started: can a bundle be made here? Leaves nothing behind."""
    existing = next(folder for folder in (runs_dir, *runs_dir.absolute().parents) if folder.exists())
    try:
        if not existing.is_dir():
            raise NotADirectoryError(20, f"{existing} is not a directory")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to the runs directory {runs_dir}: {error.strerror}; see --runs-dir") from None


def write_run(path: Path, run: Run) -> None:
    with writing(path):
        _write_atomically(path / RUN_FILE, _pretty(run))


def seal(path: Path) -> None:
    """Write the sha256 of every file, in the form that `sha256sum --check MANIFEST` reads."""
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != MANIFEST_FILE)
    with writing(path):
        lines = [f"{sha256_of(file)}  {file.relative_to(path).as_posix()}\n" for file in files]
        _write_atomically(path / MANIFEST_FILE, "".join(lines).encode())


def read_bundle(path: Path) -> RecordedRun:
    run: Run = _read(path / RUN_FILE, Run)
    if run.schema != STORE_SCHEMA:
        raise BadInput(f"{path} has store schema {run.schema}, this flagperf reads {STORE_SCHEMA}")
    nodes = _read(path / ENVIRONMENT_FILE, tuple[NodeFacts, ...])
    return RecordedRun(run, nodes, str(path))


def read_record(path: Path) -> Record:
    """The raw files. A parent file that is not there reads as empty: the run ended before it began."""
    parent = path / PARENT_EVENTS
    return Record(
        parent=read_events(parent) if parent.exists() else EventFile(()),
        ranks=read_all((path / "events").glob("rank-*.jsonl")),
        samples=read_all((path / "samples").glob("node-*.jsonl")),
    )


def broken_files(path: Path) -> list[str]:
    """What differs from MANIFEST, one sentence each."""
    try:
        lines = (path / MANIFEST_FILE).read_text(errors="replace").splitlines()
    except OSError:
        return [f"{MANIFEST_FILE} is missing: the run was never finished"]
    pairs = [line.partition("  ") for line in lines]
    listed = {name: digest for digest, _, name in pairs}
    present = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()} - {MANIFEST_FILE}
    problems = [f"{name} is missing" for name in sorted(set(listed) - present)]
    problems += [f"{name} is not in {MANIFEST_FILE}" for name in sorted(present - set(listed))]
    changed = [name for name in sorted(present & set(listed)) if sha256_of(path / name) != listed[name]]
    return problems + [f"{name} has changed since the run" for name in changed]


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise BadInput(f"{path.parent} is not a readable bundle: {path.name}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not what this flagperf writes: {error}") from None


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _write_atomically(path: Path, content: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
