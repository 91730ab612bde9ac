"""--detach, `runs attach`, `runs cancel`."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from flagperf.api import Cluster, JobState
from flagperf.bundle.liveness import Begun
from flagperf.bundle.paths import (
    DETACHED,
    DETACHED_END,
    DETACHED_RUN,
    PARENT_EVENTS,
    RUN_FILE,
    node_samples,
    rank_events,
)
from flagperf.cli.options import note
from flagperf.cli.output import echo_message, echo_text
from flagperf.errors import BadInput, BundleInUse, FlagPerfError, NodeFailed, ToolFailed
from flagperf.files import read_regular, write_atomically
from flagperf.fleet.reach import given_cluster_options
from flagperf.plugins.installed import Plugins, cluster_options, load_plugins
from flagperf.spec.job import RunSpec
from flagperf.spec.user_file import read_user_file
from flagperf.text import flagperf_command

# Runs that go on without the command that asked for them: the command itself is put into the cluster's queue.
#
# Each has a folder in the runs directory, which the nodes have to share: what was asked for, the log of the command,
# which run it began, and at the end its exit code. `attached.py` follows it from outside.


JOB_FILE, LOG_FILE, CONFIG_FILE = "job.json", "log", "flagperf.toml"

MAX_RECORD_BYTES = 1 << 20

T = TypeVar("T")

_FLAGS = {
    "timeout_seconds": "--timeout",
    "replay": "--from",
    "replay_rank": "--from-rank",
    "cluster_options": "--cluster-option",
    "container_options": "--container-option",
}


class Submitted(msgspec.Struct, frozen=True):
    """The record of a run that was put into a queue."""

    cluster: str
    job: str
    case: str
    submitted: str


class Finished(msgspec.Struct, frozen=True, omit_defaults=True):
    """Written by the command at its end, or by whoever ended its run in its place."""

    exit_code: int
    said: str = ""
    """How a run ended whose command was gone: its log does not have that."""


def submit(spec: RunSpec, plugins: Plugins, runs_dir: Path, more: Sequence[str] = ()) -> Submitted:
    """Put a request into the cluster's queue. `more` are options of `run` that are not in the request.

    Raise BadInput if the cluster has no queue or does not take the job; then nothing is left."""
    cluster = plugins.cluster(spec.cluster)
    options = cluster_options(cluster, given_cluster_options(spec, plugins))
    now = datetime.datetime.now(datetime.timezone.utc)
    folder = runs_dir.absolute() / DETACHED / f"{now:%Y%m%dT%H%M%SZ}-{spec.case}-{secrets.token_hex(3)}"
    # the user's file as it is now: whoever changes it for the next run does not change those that wait
    own_config = read_user_file(spec.config).path
    config = read_regular(Path(own_config), MAX_RECORD_BYTES) if own_config else b""
    spec = msgspec.structs.replace(spec, config=str(folder / CONFIG_FILE))
    command = [sys.executable, "-m", "flagperf", "run", *arguments(spec), *more]
    command += ["--runs-dir", str(runs_dir.absolute())]
    folder.mkdir(parents=True)
    try:
        write_atomically(folder / CONFIG_FILE, config)
        job = cluster.submit([*command, "--detached-in", str(folder)], spec.nodes, options, str(folder / LOG_FILE))
    except BaseException:
        (folder / CONFIG_FILE).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the folders that were made for it: one that has others stays
            for path in (folder, folder.parent, runs_dir.absolute()):
                path.rmdir()
        raise
    submitted = Submitted(cluster.name, job, spec.case, now.isoformat(timespec="seconds"))
    write_atomically(folder / JOB_FILE, msgspec.json.encode(submitted))
    return submitted


def arguments(spec: RunSpec) -> list[str]:
    """Return the command line of a request."""
    words = [spec.case]
    for field in msgspec.structs.fields(RunSpec):
        value = getattr(spec, field.name)
        if field.name == "case" or value == field.default:
            continue
        flag = _FLAGS.get(field.name, f"--{field.name.replace('_', '-')}")
        if isinstance(value, tuple):
            words += [word for each in value for word in (flag, each)]
        else:
            words += [flag] if value is True else [flag, str(value)]
    return words


@contextlib.contextmanager
def finishing(folder: str | None) -> Iterator[list[int]]:
    """Enter this around a run in a queue: it records the exit code, also if the run could not be started. Raise
    NodeFailed if it was started before."""
    code: list[int] = []
    if folder is not None:
        _begin(Path(folder))
    try:
        yield code
    except FlagPerfError as error:
        code.append(error.exit_code)
        raise
    except KeyboardInterrupt:
        code.append(130)
        raise
    finally:
        if folder is not None:
            _finish(Path(folder), Finished(code[0] if code else 1))


def note_run(folder: str | None, run_id: str) -> None:
    """Record which run this command begins, for whoever has to end it if the command cannot."""
    if folder is not None:
        write_atomically(Path(folder) / DETACHED_RUN, msgspec.json.encode(Begun(run_id)))


def _begin(folder: Path) -> None:
    """Refuse a second start. A cluster may put a job back into its queue and start it again, after a node failed for
    instance. Then nobody looks after what the first start had begun: it is ended here. An exit code that it left stays.
    """
    try:
        (folder / "started").touch(exist_ok=False)
    except FileExistsError:
        if not (folder / DETACHED_END).exists():
            with contextlib.suppress(BundleInUse):  # it is still at work somewhere, and will say how it ended
                if end_begun(folder, "its job was put back into the queue") is None:
                    _finish(folder, Finished(NodeFailed.exit_code))
        raise NodeFailed(
            "the cluster has started this run before, and put it back into its queue: it is not started again; what "
            f"the first start has measured is kept in {folder.parent.parent}"
        ) from None


def _finish(folder: Path, finished: Finished) -> None:
    write_atomically(folder / DETACHED_END, msgspec.json.encode(finished))


# --- a command that is gone -----------------------------------------------------------------------------------------


def end_begun(folder: Path, why: str) -> Finished | None:
    """End the run of a command that is gone, as the cluster says, without a word. Return None if it had begun no run.
    Raise BundleInUse while another process is at work on the bundle."""
    from flagperf.run import end_abandoned  # lazy, as few runs need it

    bundle = begun_bundle(folder)
    recorded = end_abandoned(bundle, why) if bundle is not None else None
    if recorded is None:
        return None
    ending = recorded.run.ending
    assert ending is not None
    why_so = f": {ending.reason}" if ending.reason else ""
    finished = Finished(ending.exit_code, f"run {recorded.run.id} ended as {ending.status}{why_so}")
    _finish(folder, finished)
    return finished


def begun_bundle(folder: Path) -> Path | None:
    begun = read_note(folder, DETACHED_RUN, Begun)
    path = folder.parent.parent / Path(begun.run_id).name if begun is not None else None
    return path if path is not None and (path / RUN_FILE).exists() else None


def read_note(folder: Path, name: Path, kind: type[T]) -> T | None:
    """Return None if it is missing. The folder is listed: NFS may remember for a minute that a file was missing."""
    if name.name not in os.listdir(folder):  # noqa: PTH208
        return None
    try:
        return msgspec.json.decode(read_regular(folder / name, MAX_RECORD_BYTES), type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{folder / name} is damaged: {error}") from None


# Follow a run in a cluster's queue from outside. If the command there is gone without a word, as when its node failed,
# its run is ended here.


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
    """Print its log as it grows, until it has ended. Return its exit code."""
    folder, submitted = _find(word, runs_dir)
    cluster, log, told = load_plugins().cluster(submitted.cluster), _Log(folder / LOG_FILE), ""
    ask_at, give_up_at = 0.0, float("inf")
    with log:
        while True:
            finished = read_note(folder, DETACHED_END, Finished)
            log.print_new()
            if finished is None and time.monotonic() >= ask_at:
                state = _state(cluster, submitted.job)
                is_forgotten = state.phase == "unknown" and _quiet_seconds(folder) > FORGOTTEN_SECONDS
                if state.phase == "ended" or is_forgotten:
                    give_up_at = min(give_up_at, time.monotonic() + LOCK_SECONDS)
                    finished = _end(folder, state.reason, give_up_at)
                    log.print_new()  # what it said at its very end
                elif state.reason != told and (not log.is_open or state.phase == "unknown"):
                    told = state.reason
                    note(told)
                ask_at = time.monotonic() + (POLL_SECONDS if _quiet_seconds(folder) > QUIET_SECONDS else STATE_SECONDS)
            if finished is not None:
                if finished.said:
                    echo_message(f"flagperf: {finished.said}")
                return finished.exit_code
            time.sleep(POLL_SECONDS)


def _state(cluster: Cluster, job: str) -> JobState:
    """Ask the cluster. One that does not answer is asked again later; until then, the job counts as running."""
    try:
        return cluster.job_state(job)
    except ToolFailed as error:
        return JobState("running", str(error))


def cancel(word: str, runs_dir: Path) -> Submitted:
    _, submitted = _find(word, runs_dir)
    load_plugins().cluster(submitted.cluster).cancel(submitted.job)
    return submitted


def _find(word: str, runs_dir: Path) -> tuple[Path, Submitted]:
    """Find a job by the cluster's number of it, or by the beginning of the folder's name, with its day at least: every
    folder begins with a year, as a number may. If jobs of several clusters have the number, return the newest."""
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
    """A log that grows while it is printed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def print_new(self) -> None:
        """Print what was added since the last call."""
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        if self._file is not None:
            echo_text(self._file.read().decode(errors="replace"))

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _quiet_seconds(folder: Path) -> float:
    """Return the time since anything was written, by the clock here."""
    paths, bundle = [folder / LOG_FILE], begun_bundle(folder)
    if bundle is not None:
        paths += [bundle / path for path in (PARENT_EVENTS, rank_events(0), node_samples(0))]
    written = [path.stat().st_mtime for path in paths if path.exists()]
    return time.time() - max(written, default=0.0)


def _end(folder: Path, why: str, give_up_at: float) -> Finished | None:
    """Return how a job ended that is over, None while somebody is at work on its bundle: another `attach`, or a
    command that the cluster has only lost sight of."""
    try:
        found = read_note(folder, DETACHED_END, Finished) or end_begun(folder, why)
    except BundleInUse as error:
        if time.monotonic() < give_up_at or _quiet_seconds(folder) < LOCK_SECONDS:
            return None
        gone = flagperf_command("runs", "end", str(begun_bundle(folder)), "--gone")
        raise NodeFailed(f"{why}, but {error}; where you know that it is gone, `{gone}` ends it") from None
    return found or Finished(NodeFailed.exit_code, why)
