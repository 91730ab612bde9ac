"""A run's folder. Files are replaced as a whole; MANIFEST comes last, so a bundle without one was never finished."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flagperf.errors import BadInput, BundleFailed
from flagperf.events import read_all, read_events
from flagperf.events.files import MAX_EVENT_BYTES, EventFile
from flagperf.files import kind_of, read_regular
from flagperf.kinds import KINDS
from flagperf.metrics import Record
from flagperf.spec import NodeFacts, fingerprint
from flagperf.store import schema1
from flagperf.store.paths import (
    ALL_NODE_SAMPLES,
    ALL_RANK_EVENTS,
    ENVIRONMENT_FILE,
    FOLDERS,
    MANIFEST_FILE,
    PARENT_EVENTS,
    RUN_FILE,
)
from flagperf.store.run import STORE_SCHEMA, RecordedRun, Run

ADDED_AT_THE_END = ("ending", "metrics", "rows", "commands")
"""Fields of run.json that nobody knows when a run begins."""
MAX_JSON_BYTES = 64 << 20
"""Of run.json, environment.json and MANIFEST: a thousand cards need less than one mebibyte."""
MAX_LOG_BYTES = 64 << 30


def create_bundle(runs_dir: Path, run: Run, nodes: tuple[NodeFacts, ...]) -> Path:
    """Make the folder of a run that is about to start."""
    path = runs_dir / run.id
    try:
        for folder in FOLDERS:
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
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != MANIFEST_FILE.name)
    with writing(path):
        lines = [f"{sha256_of(file)}  {file.relative_to(path).as_posix()}\n" for file in files]
        _write_atomically(path / MANIFEST_FILE, "".join(lines).encode())


def read_bundle(path: Path) -> RecordedRun:
    """Of this schema, or of an older one in the form of this one."""
    content = read_json(path / RUN_FILE)
    schema = content.get("schema")
    if isinstance(schema, int) and schema > STORE_SCHEMA:
        raise BadInput(
            f"{path} has store schema {schema}, this flagperf reads 1 to {STORE_SCHEMA}; install a newer one"
        )
    if not isinstance(schema, int) or schema < 1:
        raise BadInput(f"{path / RUN_FILE} is not what flagperf writes: its schema is {schema!r}")
    nodes = read_json(path / ENVIRONMENT_FILE, list)
    run = _converted(path / RUN_FILE, content, schema1.upgraded_run, Run, schema)
    facts = _converted(path / ENVIRONMENT_FILE, nodes, schema1.upgraded_nodes, tuple[NodeFacts, ...], schema)
    if not all(node.devices for node in run.job.nodes) or not run.job.nodes:
        raise BadInput(f"{path / RUN_FILE} is not what flagperf writes: a node without devices")
    if run.manifest.kind not in KINDS or run.job.kind not in KINDS:
        raise BadInput(f"{path / RUN_FILE}: this flagperf knows no kind of case {run.manifest.kind!r}")
    if schema == 1 and run.ending is not None:
        run = _with_messages(run, path)
    return RecordedRun(run, facts, str(path))


def _with_messages(run: Run, path: Path) -> Run:
    try:
        return schema1.with_messages(run, read_record(path))
    except BadInput:  # damaged: what is stored is shown, `runs verify` says what is wrong
        return run


def _converted(path: Path, content: Any, upgrade: Callable[[Any], Any], kind: Any, schema: int) -> Any:
    try:
        return msgspec.convert(upgrade(content) if schema == 1 else content, kind)
    except (msgspec.ValidationError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not what flagperf writes: {error}") from None


def read_record(path: Path) -> Record:
    """The raw files. A parent file that is not there reads as empty: the run ended before it began."""
    parent, span = path / PARENT_EVENTS, _measured_span(path)
    return Record(
        parent=read_events(parent) if parent.exists() else EventFile(()),
        ranks=read_all(path.glob(str(ALL_RANK_EVENTS)), span),
        samples=read_all(path.glob(str(ALL_NODE_SAMPLES))),
    )


class _Manifest(msgspec.Struct, frozen=True):
    kind: str


class _Run(msgspec.Struct, frozen=True):
    manifest: _Manifest


def _measured_span(path: Path) -> str:
    """What event files of schema 1 leave to run.json. Nothing where that is gone: it is noticed when it is written."""
    if not (path / RUN_FILE).exists():
        return ""
    run: _Run = read_json(path / RUN_FILE, _Run)
    return run.manifest.kind


def broken_files(path: Path) -> list[str]:
    """What differs from MANIFEST, one sentence each."""
    try:
        listed = _listed(read_regular(path / MANIFEST_FILE, MAX_JSON_BYTES).decode(errors="replace"))
    except OSError:
        return [f"{MANIFEST_FILE} is missing: the run was never finished"]
    except BadInput as error:
        return [str(error)]
    present = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()} - {MANIFEST_FILE.name}
    problems = [f"{name} is missing" for name in sorted(set(listed) - present)]
    problems += [f"{name} is not in {MANIFEST_FILE}" for name in sorted(present - set(listed))]
    changed = [name for name in sorted(present & set(listed)) if sha256_of(path / name) != listed[name]]
    return problems + [f"{name} has changed since the run" for name in changed]


def _listed(manifest: str) -> dict[str, str]:
    lines = [line.partition("  ") for line in manifest.splitlines()]
    if any(len(digest) != 64 or not name for digest, _, name in lines):
        raise BadInput(f"{MANIFEST_FILE} is not what sha256sum writes")
    return {name: digest for digest, _, name in lines}


def unreadable_files(path: Path) -> list[str]:
    """What a run never leaves, and what nobody should read: links, pipes, devices, files without end. Nothing is
    opened to find them."""
    entries = [Path(folder) / name for folder, folders, files in os.walk(path) for name in (*folders, *files)]
    found = ((entry.relative_to(path).as_posix(), _refusal(entry)) for entry in sorted(entries))
    return [f"{name} {refusal}: nothing here was read" for name, refusal in found if refusal]


def _refusal(entry: Path) -> str:
    status = entry.lstat()
    if stat.S_ISDIR(status.st_mode):
        return ""
    if not stat.S_ISREG(status.st_mode):
        return f"is {kind_of(entry)}, not a regular file"
    limits = {".json": MAX_JSON_BYTES, "": MAX_JSON_BYTES, ".jsonl": MAX_EVENT_BYTES}
    limit = limits.get(entry.suffix, MAX_LOG_BYTES)
    return "" if status.st_size <= limit else f"has {status.st_size >> 20} MiB, more than {limit >> 20}"


def planned_fields(path: Path, also: Collection[str] = ()) -> dict[str, str]:
    """Field of run.json -> its fingerprint, for all but those that a run's end adds; of these, only those of `also`. A
    job's fields stand each by itself, so that a difference has a name."""
    content = read_json(path / RUN_FILE)
    job = {f"job.{name}": value for name, value in content.pop("job", {}).items()}
    added_later = {*ADDED_AT_THE_END} - {*also}
    fields = {**{name: value for name, value in content.items() if name not in added_later}, **job}
    return {name: fingerprint(value) for name, value in fields.items()}


def environment_fingerprint(path: Path) -> str:
    return fingerprint(read_json(path / ENVIRONMENT_FILE, list))


def job_fingerprint(path: Path) -> str:
    return fingerprint(read_json(path / RUN_FILE).get("job"))


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def read_json(path: Path, kind: Any = dict) -> Any:
    """One of a bundle's JSON files, decoded as `kind`."""
    try:
        return msgspec.json.decode(read_regular(path, MAX_JSON_BYTES), type=kind)
    except OSError as error:
        raise BadInput(f"{path.parent} is not a readable bundle: {path.name}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not what flagperf writes: {error}") from None


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
