"""The parent's last event holds the sha256 of every file of the bundle, so that a change is found although MANIFEST was
rewritten. Its own file is covered up to and including that event."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from flagperf.events import BundleSealed, EventFile, EventWriter
from flagperf.events.files import MAX_EVENT_BYTES
from flagperf.files import read_regular
from flagperf.store.paths import LABELS_FILE, MANIFEST_FILE, PARENT_EVENTS, SIGNATURE_FILE

_PARENT = PARENT_EVENTS.as_posix()
_WRITTEN_LATER = (MANIFEST_FILE.name, SIGNATURE_FILE.name, LABELS_FILE.name)


def file_digests(path: Path) -> dict[str, str]:
    """Name of every file -> its sha256, except those that no hash covers. Raises OSError for an unreadable one."""
    files = {_name(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}
    return {name: sha256_of(files[name]) for name in sorted(files) if name not in _WRITTEN_LATER}


def _name(path: Path) -> str:
    """A run creates no name that is not UTF-8; one that somebody adds is reported all the same."""
    return os.fsencode(path).decode(errors="backslashreplace")


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def witness_files(path: Path, digests: Mapping[str, str], t_ns: int | None = None) -> dict[str, str]:
    """Write the last event of the parent, after which only MANIFEST is written. Gives back the digests with it. `t_ns`
    is when that was [default: now].

    Raises BadInput where somebody put something else in the place of its file.
    """
    parent, others = path / PARENT_EVENTS, _others(digests)
    event = BundleSealed(time.monotonic_ns() if t_ns is None else t_ns, others)
    before = read_regular(parent, MAX_EVENT_BYTES) if os.path.lexists(parent) else b""
    own = hashlib.sha256(before + msgspec.json.encode(event) + b"\n").hexdigest()
    with EventWriter(parent) as writer:
        writer.write(msgspec.structs.replace(event, own=own))
    return {**others, _PARENT: sha256_of(parent)}


def witness_problems(path: Path, parent: EventFile, digests: Mapping[str, str]) -> Iterator[str]:
    """Give the differences from what the parent's last event says."""
    sealed = [event for event in parent.events if isinstance(event, BundleSealed)]
    if not sealed:
        yield f"{_PARENT} lacks its last event, with the hashes of all files"
        return
    if sealed[0] is not parent.events[-1] or parent.torn or not _is_own(path, sealed[0]):
        yield f"{_PARENT} has changed since the run"
    before, now = sealed[0].files, _others(digests)
    yield from (f"{name} is missing" for name in sorted(set(before) - set(now)))
    yield from (f"{name} was added after the run" for name in sorted(set(now) - set(before)))
    changed = (name for name in sorted(set(before) & set(now)) if before[name] != now[name])
    yield from (f"{name} has changed since the run" for name in changed)


def _others(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest for name, digest in digests.items() if name != _PARENT}


def _is_own(path: Path, event: BundleSealed) -> bool:
    """The hash is over the file as it would be without this field. Bytes are compared, not values, so that a field
    which a later version adds changes nothing."""
    content = read_regular(path / PARENT_EVENTS, MAX_EVENT_BYTES)
    start, field, end = content.rpartition(f',"own":"{event.own}"'.encode())
    return bool(field) and hashlib.sha256(start + end).hexdigest() == event.own
