"""Ends a run whose command is gone: killed, or lost with its machine. What the command would have written at its end is
written in its place, from the files that it left."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from flagperf import version
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, BundleInUse
from flagperf.events import BundleSealed, Event, EventWriter, RunEnded, RunStarted, read_events, this_clock
from flagperf.events.files import MAX_EVENT_BYTES
from flagperf.files import read_regular
from flagperf.messages import Message, message
from flagperf.run import end_run
from flagperf.store.alive import parent_of
from flagperf.store.bundle import read_bundle, remove_unstarted, seal, unreadable_files, write_manifest, writing
from flagperf.store.in_use import alone
from flagperf.store.measure import measure
from flagperf.store.paths import ALL_RANK_EVENTS, MANIFEST_FILE, OPERATORS_FILE, PARENT_EVENTS, RUN_FILE
from flagperf.store.run import Ending, RecordedRun, Run, Status, ended
from flagperf.store.witness import sha256_of


def has_ended(bundle: Path) -> bool:
    """The folder is listed: what NFS remembers of a file that was not there may be a minute old."""
    return MANIFEST_FILE.name in os.listdir(bundle)  # noqa: PTH208


def check_gone(bundle: Path) -> None:
    """Raises BadInput unless it is proved that the run's command is gone."""
    parent = parent_of(bundle)
    if parent.state == "gone":
        return
    if parent.state == "alive":
        raise BundleInUse(f"{bundle.name} is in use: its command on {parent.host or 'this machine'} is still at work")
    anyway = flagperf_command("runs", "end", str(bundle), "--gone")
    where = f"its command began on {parent.host}" if parent.host else "its command may be about to begin"
    unseen = "whether it lives cannot be seen from here"
    raise BadInput(f"{bundle.name}: {where}, and {unseen}; where you know that it is gone, `{anyway}` ends it")


def end_abandoned(bundle: Path, why: str = "", *, said_gone: bool = False) -> RecordedRun | None:
    """The run with its ending, which says `why` its command is gone where that is known; None, and the folder is
    removed, where no run had begun. What has ended is left as it is.

    The caller knows that the command is gone. Raises BundleInUse where the bundle's lock says otherwise, unless a
    person `said_gone`; BadInput where the bundle cannot be read.
    """
    for problem in unreadable_files(bundle):
        raise BadInput(f"{bundle.name} cannot be ended: {problem}")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(alone(bundle))
        except BundleInUse:
            if not said_gone:
                raise
        return read_bundle(bundle) if has_ended(bundle) else _ended(bundle, why)


def _ended(bundle: Path, why: str) -> RecordedRun | None:
    """Goes on from wherever the command was killed."""
    run, events = _run_of_this_version(bundle), _cut_events(bundle)
    if not events and not any(bundle.glob(str(ALL_RANK_EVENTS))):
        remove_unstarted(bundle)
        return None
    if not events or not isinstance(events[0], RunStarted):
        raise BadInput(f"{bundle.name} cannot be ended: {PARENT_EVENTS} lacks its first event")
    _remove_unfinished(bundle)
    last = events[-1]
    if isinstance(last, BundleSealed):
        with writing(bundle):
            write_manifest(bundle, {**last.files, PARENT_EVENTS.as_posix(): sha256_of(bundle / PARENT_EVENTS)})
    elif run.ending is not None:
        seal(bundle)
    else:
        measured = measure(bundle, run.job, run.manifest)
        ending = _own_ending(events) or _write_ending(bundle, _reason(events[0], why))
        end_run(bundle, run, ending, measured)
    return read_bundle(bundle)


def _run_of_this_version(bundle: Path) -> Run:
    """Another one may have other metrics than the run began with."""
    run = read_bundle(bundle).run
    if run.flagperf_version != version():
        raise BadInput(f"{bundle.name} was begun by flagperf {run.flagperf_version}: end it with that version")
    return run


def _whole_events(bundle: Path) -> Sequence[Event]:
    path = bundle / PARENT_EVENTS
    return read_events(path).events if path.exists() else ()


def _cut_events(bundle: Path) -> Sequence[Event]:
    """Without the line that the command was writing when it was killed: another one is written behind it."""
    path = bundle / PARENT_EVENTS
    if path.exists():
        content = read_regular(path, MAX_EVENT_BYTES)
        with writing(bundle):
            os.truncate(path, content.rfind(b"\n") + 1)
    return _whole_events(bundle)


def _remove_unfinished(bundle: Path) -> None:
    """Files that were not renamed yet (`write_atomically`)."""
    with writing(bundle):
        for name in (RUN_FILE, OPERATORS_FILE, MANIFEST_FILE):
            for path in bundle.glob(f".{name}.*"):
                path.unlink()


def _own_ending(events: Sequence[Event]) -> Ending | None:
    """The command's own, where that was killed while it measured."""
    found = [event for event in events if isinstance(event, RunEnded)]
    return Ending(cast("Status", found[0].status), found[0].reason, found[0].message) if found else None


def _reason(started: RunStarted, why: str) -> Message:
    gone = message("ending.command_gone", pid=started.clock.pid, host=started.clock.host)
    return message("ending.because", what=gone, why=why) if why else gone


def _write_ending(bundle: Path, why: Message) -> Ending:
    ending = ended("failed", why)
    with writing(bundle), EventWriter(bundle / PARENT_EVENTS) as writer:
        writer.write(RunEnded(time.monotonic_ns(), ending.status, ending.reason, ending.message, this_clock()))
    return ending
