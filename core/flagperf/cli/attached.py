"""Follows a run that is in a cluster's queue, from outside. Where the command there is gone without a word, as with its
node, its run is ended here."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from flagperf.api import Cluster, JobState
from flagperf.cli.detached import (
    JOB_FILE,
    LOG_FILE,
    MAX_RECORD_BYTES,
    Finished,
    Submitted,
    begun_bundle,
    end_begun,
    read_note,
)
from flagperf.cli.options import note
from flagperf.cli.output import echo_message, echo_text
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, BundleInUse, NodeFailed, ToolFailed
from flagperf.files import read_regular
from flagperf.plugins.installed import load_plugins
from flagperf.store.paths import DETACHED, DETACHED_END, PARENT_EVENTS, node_samples, rank_events

POLL_SECONDS = 1.0
STATE_SECONDS = 5.0
"""Between two questions to the cluster; POLL_SECONDS where nothing was written for QUIET_SECONDS."""
QUIET_SECONDS = 10.0
"""What nodes measure arrives every 5 s."""
FORGOTTEN_SECONDS = 120.0
"""A job that the cluster does not know is over if nothing was written for so long. Clusters forget jobs that ended; but
one may also be asked that never had it."""
LOCK_SECONDS = 100.0
"""A server of NFS may keep a lock for 90 s after its client died."""


def attach(word: str, runs_dir: Path) -> int:
    """Print its log as it grows, until it has ended. Gives its exit code."""
    folder, submitted = _find(word, runs_dir)
    cluster, log, told = load_plugins().cluster(submitted.cluster), _Log(folder / LOG_FILE), ""
    ask_at, give_up_at = 0.0, float("inf")
    with log:
        while True:
            finished = read_note(folder, DETACHED_END, Finished)
            log.print_new()
            if finished is None and time.monotonic() >= ask_at:
                state = _state(cluster, submitted.job)
                if _is_over(state, folder):
                    give_up_at = min(give_up_at, time.monotonic() + LOCK_SECONDS)
                    finished = _end(folder, state.reason, give_up_at)
                    log.print_new()  # what it said at its very end
                elif state.reason != told and (not log.is_open or state.phase == "unknown"):
                    told = state.reason
                    note(told)
                ask_at = time.monotonic() + (POLL_SECONDS if _quiet_seconds(folder) > QUIET_SECONDS else STATE_SECONDS)
            if finished is not None:
                return _told(finished)
            time.sleep(POLL_SECONDS)


def _state(cluster: Cluster, job: str) -> JobState:
    """Of a cluster that does not answer nothing is known for now: it is asked again later."""
    try:
        return cluster.job_state(job)
    except ToolFailed as error:
        return JobState("running", str(error))


def cancel(word: str, runs_dir: Path) -> Submitted:
    _, submitted = _find(word, runs_dir)
    load_plugins().cluster(submitted.cluster).cancel(submitted.job)
    return submitted


def _find(word: str, runs_dir: Path) -> tuple[Path, Submitted]:
    """By the cluster's own number of the job, or the beginning of the folder's name, with its day at least: every
    folder begins with a year, as a number may. Of jobs with one number, of several clusters, the newest."""
    known = []
    for path in sorted((runs_dir / DETACHED).glob(f"*/{JOB_FILE}")):
        with contextlib.suppress(msgspec.DecodeError, BadInput):
            known.append((path.parent, msgspec.json.decode(read_regular(path, MAX_RECORD_BYTES), type=Submitted)))
    found = [each for each in known if word == each[1].job][-1:]
    if not found and len(word) >= len("20260102"):
        found = [each for each in known if each[0].name.startswith(word)]
    if len(found) > 1:
        names = ", ".join(folder.name for folder, _ in found)
        raise BadInput(
            f"{word!r} is the beginning of several detached runs: {names}; give more of the name, or the job"
        )
    if not found:
        jobs = ", ".join(submitted.job for _, submitted in known) or "none"
        start = flagperf_command("run", "CASE", "--cluster", "NAME", "--detach")
        raise BadInput(f"no detached run {word!r} in {runs_dir}; there are {jobs}; `{start}` makes one")
    return found[0]


class _Log:
    """What the command prints, from where it was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def print_new(self) -> None:
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        if self._file is not None:
            echo_text(self._file.read().decode(errors="replace"))

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _told(finished: Finished) -> int:
    if finished.said:
        echo_message(f"flagperf: {finished.said}")
    return finished.exit_code


def _is_over(state: JobState, folder: Path) -> bool:
    return state.phase == "ended" or (state.phase == "unknown" and _quiet_seconds(folder) > FORGOTTEN_SECONDS)


def _quiet_seconds(folder: Path) -> float:
    """Since anything was written, by the clock here."""
    paths, bundle = [folder / LOG_FILE], begun_bundle(folder)
    if bundle is not None:
        paths += [bundle / path for path in (PARENT_EVENTS, rank_events(0), node_samples(0))]
    written = [path.stat().st_mtime for path in paths if path.exists()]
    return time.time() - max(written, default=0.0)


def _end(folder: Path, why: str, give_up_at: float) -> Finished | None:
    """How it ended, of a job that is over. None while somebody is at work on its bundle: another `attach`, or a command
    that the cluster has only lost sight of."""
    try:
        found = read_note(folder, DETACHED_END, Finished) or end_begun(folder, why)
    except BundleInUse as error:
        if time.monotonic() < give_up_at or _quiet_seconds(folder) < LOCK_SECONDS:
            return None
        gone = flagperf_command("runs", "end", str(begun_bundle(folder)), "--gone")
        raise NodeFailed(f"{why}, but {error}; where you know that it is gone, `{gone}` ends it") from None
    return found or Finished(NodeFailed.exit_code, why)
