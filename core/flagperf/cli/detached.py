"""Runs that go on without the command that asked for them: the command itself is put into the cluster's queue.

Each has a folder in the runs directory, which the nodes have to share: what was asked for, the log of the command,
which run it began, and at the end its exit code. `attached.py` follows it from outside.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from flagperf.errors import BadInput, BundleInUse, FlagPerfError, NodeFailed
from flagperf.files import read_regular, write_atomically
from flagperf.plan.reach import given_cluster_options
from flagperf.plan.userfile import read_user_file
from flagperf.plugins.installed import Plugins, cluster_options
from flagperf.spec import RunSpec
from flagperf.store.alive import Begun
from flagperf.store.paths import DETACHED, DETACHED_END, DETACHED_RUN, RUN_FILE

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
    """What was put into a queue."""

    cluster: str
    job: str
    case: str
    submitted: str


class Finished(msgspec.Struct, frozen=True, omit_defaults=True):
    """Written by the command at its end, or by whoever ended its run in its place."""

    exit_code: int
    said: str = ""
    """What is not in the log: how a run ended whose command was gone."""


def submit(spec: RunSpec, plugins: Plugins, runs_dir: Path, more: Sequence[str] = ()) -> Submitted:
    """`more` are options of `run` that are no part of the request.

    Raises BadInput where the cluster has no queue, or does not take the job; then nothing is left."""
    cluster = plugins.cluster(spec.cluster)
    options = cluster_options(cluster, given_cluster_options(spec, plugins))
    now = datetime.datetime.now(datetime.timezone.utc)
    folder = runs_dir.absolute() / DETACHED / f"{now:%Y%m%dT%H%M%SZ}-{spec.case}-{secrets.token_hex(3)}"
    config = _config(spec)
    spec = msgspec.structs.replace(spec, config=str(folder / CONFIG_FILE))
    command = [sys.executable, "-m", "flagperf", "run", *arguments(spec), *more]
    command += ["--runs-dir", str(runs_dir.absolute())]
    folder.mkdir(parents=True)
    try:
        write_atomically(folder / CONFIG_FILE, config)
        job = cluster.submit([*command, "--detached-in", str(folder)], spec.nodes, options, str(folder / LOG_FILE))
    except BaseException:
        _remove_empty(folder, runs_dir.absolute())
        raise
    submitted = Submitted(cluster.name, job, spec.case, now.isoformat(timespec="seconds"))
    write_atomically(folder / JOB_FILE, msgspec.json.encode(submitted))
    return submitted


def _config(spec: RunSpec) -> bytes:
    """The user's file as it is now: whoever changes it for the next run does not change those that wait."""
    path = read_user_file(spec.config).path
    return read_regular(Path(path), MAX_RECORD_BYTES) if path else b""


def _remove_empty(folder: Path, runs_dir: Path) -> None:
    """With the folders above it that were made for it."""
    (folder / CONFIG_FILE).unlink(missing_ok=True)
    for path in (folder, folder.parent, runs_dir):
        try:
            path.rmdir()
        except OSError:  # it has others
            return


def arguments(spec: RunSpec) -> list[str]:
    """The command line of a request."""
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
    """Around a run in a queue: takes its exit code, also where it could not be started. Raises NodeFailed where it was
    started before."""
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
    """Which run this command begins, for whoever has to end it where the command cannot."""
    if folder is not None:
        write_atomically(Path(folder) / DETACHED_RUN, msgspec.json.encode(Begun(run_id)))


def _begin(folder: Path) -> None:
    """A cluster may put a job back into its queue and start it again, after a node failed for instance. Then nobody
    looks after what the first start had begun, and the exit code that it may have left is not ours to change."""
    try:
        (folder / "started").touch(exist_ok=False)
    except FileExistsError:
        if not (folder / DETACHED_END).exists():
            _end_first_start(folder)
        raise NodeFailed(
            "the cluster has started this run before, and put it back into its queue: it is not started again; what "
            f"the first start has measured is kept in {folder.parent.parent}"
        ) from None


def _end_first_start(folder: Path) -> None:
    with contextlib.suppress(BundleInUse):  # it is still at work somewhere, and will say how it ended
        if end_begun(folder, "its job was put back into the queue") is None:
            _finish(folder, Finished(NodeFailed.exit_code))


def _finish(folder: Path, finished: Finished) -> None:
    write_atomically(folder / DETACHED_END, msgspec.json.encode(finished))


# --- a command that is gone -----------------------------------------------------------------------------------------


def end_begun(folder: Path, why: str) -> Finished | None:
    """End the run of a command that left no word; the cluster has said that it is gone. None where it had begun none.
    Raises BundleInUse while another process is at work on the bundle."""
    from flagperf.abandoned import end_abandoned  # lazy, as few runs need it

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
    """None where it is not there. The folder is listed: what NFS remembers of a missing file may be a minute old."""
    if name.name not in os.listdir(folder):  # noqa: PTH208
        return None
    try:
        return msgspec.json.decode(read_regular(folder / name, MAX_RECORD_BYTES), type=kind)
    except msgspec.DecodeError as error:
        raise BadInput(f"{folder / name} is damaged: {error}") from None
