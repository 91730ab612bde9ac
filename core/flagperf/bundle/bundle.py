"""Create, write, seal and read the folder of a run.

MANIFEST is written last: a bundle without it is unfinished. Before it, the parent's last event records the sha256 of
every file, so that a change is found even if MANIFEST was rewritten; its own file counts up to and including that
event.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from flagperf.api import LaunchCommand
from flagperf.bundle.liveness import holding, parent_of
from flagperf.bundle.paths import (
    ALL_NODE_SAMPLES,
    ALL_RANK_EVENTS,
    ENVIRONMENT_FILE,
    FOLDERS,
    LABELS_FILE,
    MANIFEST_FILE,
    PARENT_EVENTS,
    REDACTION_FILE,
    RUN_FILE,
    SIGNATURE_FILE,
)
from flagperf.bundle.run_record import (
    REDACTION_SCHEMA,
    STORE_SCHEMA,
    RecordedRun,
    Redaction,
    Run,
    read_labels,
    resolved,
    with_references,
)
from flagperf.errors import BadInput, BundleFailed
from flagperf.event_files import MAX_EVENT_BYTES, EventFile, EventFiles, EventWriter, read_events
from flagperf.events import BundleSealed, WorkersLaunched
from flagperf.files import kind_of, read_regular, sha256_of, write_atomically
from flagperf.kinds import KINDS
from flagperf.metrics.entry import Record
from flagperf.spec.job import fingerprint
from flagperf.spec.node_facts import NodeFacts
from flagperf.text import is_utf8

MAX_JSON_BYTES = 64 << 20
"""Limit for run.json, environment.json and MANIFEST. A run on 8,000 cards needs up to 11 MB."""

MAX_LOG_BYTES = 64 << 30

ADDED_AT_THE_END = ("ending", "metrics", "rows", "commands", "recorded")
"""Fields of run.json that are filled in when a run ends."""


# --- write ----------------------------------------------------------------------------------------------------------


def check_writable(runs_dir: Path) -> None:
    """Raise BadInput unless a bundle can be created here. Leave no files behind."""
    if not is_utf8(str(runs_dir.absolute())):
        why = "its path is not UTF-8 in this locale, and is recorded in JSON"
        raise BadInput(f"the runs directory {str(runs_dir)!a} cannot be used: {why}; see --runs-dir")
    try:
        existing = next(folder for folder in (runs_dir, *runs_dir.absolute().parents) if folder.exists())
        if not existing.is_dir():
            raise NotADirectoryError(20, f"{existing} is not a directory")
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to the runs directory {runs_dir}: {error.strerror}; see --runs-dir") from None


@contextlib.contextmanager
def new_bundle(runs_dir: Path, run: Run, nodes: tuple[NodeFacts, ...]) -> Iterator[Path]:
    """Create the bundle of a run that is about to start. This process holds it before anybody can see it."""
    path = runs_dir / run.id
    with contextlib.ExitStack() as held:
        try:
            for folder in FOLDERS:
                (path / folder).mkdir(parents=True)
            held.enter_context(holding(path))
            write_atomically(path / ENVIRONMENT_FILE, _pretty(with_references(nodes)))
            write_atomically(path / RUN_FILE, _pretty(run))
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise BadInput(f"cannot write the bundle {path}: {error.strerror}; choose another --runs-dir") from None
        yield path


def create_bundle(runs_dir: Path, run: Run, nodes: tuple[NodeFacts, ...]) -> Path:
    """Create a bundle that nobody holds."""
    with new_bundle(runs_dir, run, nodes) as path:
        return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError while a bundle is written into BundleFailed."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        why = f"{error.strerror}{where}" if path.is_dir() else "it was removed during the run"
        advice = "the bundle is incomplete; free disk space, or choose another --runs-dir"
        raise BundleFailed(f"cannot write the bundle {path}: {why}; {advice}") from None


def write_run(path: Path, run: Run) -> None:
    with writing(path):
        write_atomically(path / RUN_FILE, _pretty(run))


def remove_unstarted(path: Path) -> None:
    """Remove the bundle of a run that was interrupted before its first event."""
    events = path / PARENT_EVENTS
    if not events.exists() or not events.stat().st_size:
        shutil.rmtree(path, ignore_errors=True)


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


# --- read -----------------------------------------------------------------------------------------------------------


def read_bundle(path: Path) -> RecordedRun:
    """Read run.json, environment.json and the labels of a bundle. Raise BadInput for what is not a valid record."""
    content = read_json(path / RUN_FILE)
    check_schema(path, content.get("schema"), "metric_versions" in content)
    nodes = read_json(path / ENVIRONMENT_FILE, list)
    run: Run = _converted(path / RUN_FILE, content, functools.partial(msgspec.convert, type=Run))
    facts: tuple[NodeFacts, ...] = _converted(path / ENVIRONMENT_FILE, nodes, resolved)
    if not all(node.devices for node in run.job.nodes) or not run.job.nodes:
        raise BadInput(f"{path / RUN_FILE} is not a valid run record: a node has no devices")
    if run.manifest.kind not in KINDS or run.job.kind not in KINDS:
        raise BadInput(f"{path / RUN_FILE}: this flagperf has no kind of case {run.manifest.kind!r}")
    parent = None if run.ending else parent_of(path)
    state, host = (parent.state, parent.host) if parent else (None, "")
    return RecordedRun(run, facts, str(path), state, host, read_labels(path))


def check_schema(path: Path, schema: object, has_versions: bool) -> None:
    """Raise BadInput for a run.json that this version does not read. Bundles from before the first release have schema
    2, or schema 1 and no `metric_versions`."""
    if schema == 2 or (schema == 1 and not has_versions):
        why = f"was recorded by an unreleased version (schema {schema}); run the case again"
    elif isinstance(schema, int) and schema > STORE_SCHEMA:
        why = f"has store schema {schema}, this flagperf reads {STORE_SCHEMA}; install a newer flagperf"
    elif schema != STORE_SCHEMA:
        why = f"is not a valid run record: its schema is {schema!r}"
    else:
        return
    raise BadInput(f"{path / RUN_FILE} {why}")


def check_form(path: Path) -> None:
    """Raise BadInput for a bundle that another version wrote in another form. What is damaged passes."""
    try:
        content = read_json(path / RUN_FILE)
    except BadInput:
        return
    if isinstance(content.get("schema"), int):
        check_schema(path, content.get("schema"), "metric_versions" in content)


def read_record(path: Path) -> Record:
    """Return the raw files. Those of ranks and nodes are read when somebody iterates over them. A missing parent file
    counts as empty: the run ended before it was created."""
    parent = path / PARENT_EVENTS
    return Record(
        parent=read_events(parent) if parent.exists() else EventFile(()),
        ranks=EventFiles(path.glob(str(ALL_RANK_EVENTS))),
        samples=EventFiles(path.glob(str(ALL_NODE_SAMPLES))),
    )


def launched_commands(parent: EventFile) -> tuple[LaunchCommand, ...]:
    """Return the commands that agents ran, sorted by node. Nodes whose workers were not started have none."""
    launched = [event for event in parent.events if isinstance(event, WorkersLaunched)]
    return tuple(event.command for event in sorted(launched, key=lambda event: event.node_index))


def read_redaction(bundle: Path) -> Redaction | None:
    """Return None for a run that is not redacted. Raise BadInput for a file that cannot be read."""
    path = bundle / REDACTION_FILE
    if not path.exists():
        return None
    content = read_json(path)
    if content.get("schema") != REDACTION_SCHEMA:
        advice = f"this flagperf reads {REDACTION_SCHEMA}; install a newer flagperf"
        raise BadInput(f"{path} has schema {content.get('schema')}, {advice}")
    found: Redaction = _converted(path, content, functools.partial(msgspec.convert, type=Redaction))
    return found


def read_json(path: Path, kind: Any = dict) -> Any:
    """Decode a JSON file of a bundle as `kind`. Raise BadInput if it is not there, or not that."""
    try:
        return msgspec.json.decode(read_regular(path, MAX_JSON_BYTES), type=kind)
    except OSError as error:
        raise BadInput(f"{path.parent} is not a readable bundle: {path.name}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not a valid run record: {error}") from None


def _converted(path: Path, content: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(content)
    except (msgspec.ValidationError, LookupError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not a valid run record: {error}") from None


# --- what was planned: hashes of values, so that a file of another layout is the same -------------------------------


def planned_fields(path: Path) -> dict[str, str]:
    """Return the fingerprint of each field of run.json that the plan decides, and of each field of its job, so that a
    difference can be named."""
    content = read_json(path / RUN_FILE)
    job = {f"job.{name}": value for name, value in content.pop("job", {}).items()}
    fields = {**{name: value for name, value in content.items() if name not in ADDED_AT_THE_END}, **job}
    return {name: fingerprint(value) for name, value in fields.items()}


def environment_fingerprint(path: Path) -> str:
    return fingerprint(read_json(path / ENVIRONMENT_FILE, list))


def job_fingerprints(path: Path) -> dict[int, str]:
    """Return the fingerprint of the job as each node's workers received it: with that node alone."""
    job = read_json(path / RUN_FILE).get("job")
    if not isinstance(job, dict):
        return {}
    return {int(node["index"]): fingerprint({**job, "nodes": [node]}) for node in job.get("nodes", [])}


# --- hashes of all files --------------------------------------------------------------------------------------------


def seal(path: Path) -> None:
    """Finish a run: the parent's last event witnesses all files, and MANIFEST lists them."""
    with writing(path):
        try:
            digests = witness_files(path, file_digests(path))
        except BadInput as error:
            raise BundleFailed(f"cannot seal the bundle {path}: {error}") from None
        write_manifest(path, digests)


def file_digests(path: Path) -> dict[str, str]:
    """Return the sha256 of every file by its name, except of MANIFEST and of what is added later. Raise OSError for a
    file that cannot be read."""
    uncovered = (MANIFEST_FILE.name, SIGNATURE_FILE.name, LABELS_FILE.name)
    files = {
        os.fsencode(file.relative_to(path)).decode(errors="backslashreplace"): file  # somebody may add any name
        for file in path.rglob("*")
        if file.is_file()
    }
    return {name: sha256_of(files[name]) for name in sorted(files) if name not in uncovered}


def witness_files(path: Path, digests: Mapping[str, str], t_ns: int | None = None) -> dict[str, str]:
    """Write the parent's last event, with its time [default: now], and return the digests with that of its file. Raise
    BadInput if something else lies in the place of its file."""
    parent, others = path / PARENT_EVENTS, _without_parent(digests)
    event = BundleSealed(time.monotonic_ns() if t_ns is None else t_ns, others)
    before = read_regular(parent, MAX_EVENT_BYTES) if os.path.lexists(parent) else b""
    own = hashlib.sha256(before + msgspec.json.encode(event) + b"\n").hexdigest()
    with EventWriter(parent) as writer:
        writer.write(msgspec.structs.replace(event, own=own))
    return {**others, PARENT_EVENTS.as_posix(): sha256_of(parent)}


def witness_problems(path: Path, parent: EventFile, digests: Mapping[str, str]) -> Iterator[str]:
    """Name what differs from what the parent's last event says."""
    sealed = [event for event in parent.events if isinstance(event, BundleSealed)]
    if not sealed:
        yield f"{PARENT_EVENTS} lacks its last event, with the hashes of all files"
        return
    # `own` is the hash of the file as it would be without this field. Bytes are compared, not values, so that a field
    # which a later version adds changes nothing.
    content = read_regular(path / PARENT_EVENTS, MAX_EVENT_BYTES)
    start, field, end = content.rpartition(f',"own":"{sealed[0].own}"'.encode())
    is_own = bool(field) and hashlib.sha256(start + end).hexdigest() == sealed[0].own
    if sealed[0] is not parent.events[-1] or parent.torn or not is_own:
        yield f"{PARENT_EVENTS} has changed since the run"
    yield from _differences(sealed[0].files, _without_parent(digests), "was added after the run")


def _without_parent(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if name != PARENT_EVENTS.as_posix()}


def write_manifest(path: Path, digests: Mapping[str, str]) -> None:
    """Write the sha256 of every file in the format that `sha256sum --check` reads."""
    lines = [f"{digests[name]}  {name}\n" for name in sorted(digests)]
    write_atomically(path / MANIFEST_FILE, "".join(lines).encode())


def broken_files(path: Path, digests: Mapping[str, str]) -> list[str]:
    """Name what differs from MANIFEST."""
    try:
        manifest = read_regular(path / MANIFEST_FILE, MAX_JSON_BYTES).decode(errors="replace")
    except OSError:
        return [f"{MANIFEST_FILE} is missing: the run was never finished"]
    except BadInput as error:
        return [str(error)]
    lines = [line.partition("  ") for line in manifest.splitlines()]
    if any(len(digest) != 64 or not name for digest, _, name in lines):
        return [f"{MANIFEST_FILE} is not in the format of sha256sum"]
    return list(_differences({name: digest for digest, _, name in lines}, digests, f"is not in {MANIFEST_FILE}"))


def _differences(before: Mapping[str, str], now: Mapping[str, str], added: str) -> Iterator[str]:
    yield from (f"{name} is missing" for name in sorted(set(before) - set(now)))
    yield from (f"{name} {added}" for name in sorted(set(now) - set(before)))
    changed = (name for name in sorted(set(before) & set(now)) if before[name] != now[name])
    yield from (f"{name} has changed since the run" for name in changed)


def unreadable_files(path: Path) -> list[str]:
    """Name the entries that no run creates and that are not safe to read: links, pipes, devices, files that are too
    large. No file is opened."""
    limits = {".json": MAX_JSON_BYTES, "": MAX_JSON_BYTES, ".sig": MAX_JSON_BYTES, ".jsonl": MAX_EVENT_BYTES}
    entries = [Path(folder) / name for folder, folders, files in os.walk(path) for name in (*folders, *files)]
    problems = []
    for entry in sorted(entries):
        try:
            status = entry.lstat()
        except FileNotFoundError:  # renamed since it was listed: another command is writing here (`write_atomically`)
            continue
        limit = limits.get(entry.suffix, MAX_LOG_BYTES)
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            problem = f"is {kind_of(entry)}, not a regular file"
        elif entry.name.splitlines() != [entry.name]:
            problem = "has a name that MANIFEST cannot list"
        elif status.st_size > limit:
            problem = f"has {status.st_size >> 20} MiB, more than {limit >> 20}"
        else:
            continue
        problems.append(f"{entry.relative_to(path).as_posix()} {problem}: nothing here was read")
    return problems
