"""Runs that go on without the command that asked for them: the command itself is put into the cluster's queue.

Each has a folder in the runs directory, which the nodes have to share: what was asked for, the log of the command, and
at the end its exit code.
"""

from __future__ import annotations

import contextlib
import datetime
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from flagperf.cli.options import note
from flagperf.cli.output import echo_message, echo_text
from flagperf.commands import flagperf_command
from flagperf.errors import BadInput, FlagPerfError
from flagperf.files import read_regular
from flagperf.plan.reach import given_cluster_options
from flagperf.plugins import Plugins, load_plugins
from flagperf.plugins.registry import cluster_options
from flagperf.spec import RunSpec
from flagperf.store.bundle import write_atomically

FOLDER = "detached"
POLL_SECONDS = 1.0
STATE_SECONDS = 5.0
"""Between two questions to the cluster."""

MAX_RECORD_BYTES = 1 << 20

_FLAGS = {
    "timeout_seconds": "--timeout",
    "cluster_options": "--cluster-option",
    "container_options": "--container-option",
}


class Submitted(msgspec.Struct, frozen=True):
    """What was put into a queue."""

    cluster: str
    job: str
    case: str
    submitted: str


class Finished(msgspec.Struct, frozen=True):
    """Written by the command at its end."""

    exit_code: int


def submit(spec: RunSpec, plugins: Plugins, runs_dir: Path) -> Submitted:
    """Raises BadInput where the cluster has no queue, or does not take the job; then nothing is left."""
    cluster = plugins.cluster(spec.cluster)
    options = cluster_options(cluster, given_cluster_options(spec, plugins))
    now = datetime.datetime.now(datetime.timezone.utc)
    folder = runs_dir.absolute() / FOLDER / f"{now:%Y%m%dT%H%M%SZ}-{spec.case}-{secrets.token_hex(3)}"
    command = [sys.executable, "-m", "flagperf", "run", *arguments(spec), "--runs-dir", str(runs_dir.absolute())]
    folder.mkdir(parents=True)
    try:
        job = cluster.submit([*command, "--detached-in", str(folder)], spec.nodes, options, str(folder / "log"))
    except BaseException:
        _remove_empty(folder, runs_dir.absolute())
        raise
    submitted = Submitted(cluster.name, job, spec.case, now.isoformat(timespec="seconds"))
    write_atomically(folder / "job.json", msgspec.json.encode(submitted))
    return submitted


def _remove_empty(folder: Path, runs_dir: Path) -> None:
    """With the folders above it that were made for it."""
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
    """Around a run in a queue: takes its exit code, also where it could not be started."""
    code: list[int] = []
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
            finished = Finished(code[0] if code else 1)
            write_atomically(Path(folder) / "finished.json", msgspec.json.encode(finished))


def attach(word: str, runs_dir: Path) -> int:
    """Print its log as it grows, until it has ended. Gives its exit code."""
    folder, submitted = _find(word, runs_dir)
    cluster, asked_at, ending = load_plugins().cluster(submitted.cluster), 0.0, ""
    with contextlib.ExitStack() as stack:
        log = None
        while True:
            is_over = (folder / "finished.json").exists()
            if log is None and (folder / "log").exists():
                log = stack.enter_context((folder / "log").open("rb"))
            if log is not None:
                echo_text(log.read().decode(errors="replace"))
            if is_over:
                content = read_regular(folder / "finished.json", MAX_RECORD_BYTES)
                return msgspec.json.decode(content, type=Finished).exit_code
            if ending:  # and still no word of the command
                echo_message(f"flagperf: {ending}")
                return 3
            if time.monotonic() - asked_at > STATE_SECONDS:
                asked_at, state = time.monotonic(), cluster.job_state(submitted.job)
                ending = state.reason if state.phase in ("ended", "unknown") else ""
                if log is None:
                    note(state.reason)
            time.sleep(POLL_SECONDS)


def cancel(word: str, runs_dir: Path) -> Submitted:
    _, submitted = _find(word, runs_dir)
    load_plugins().cluster(submitted.cluster).cancel(submitted.job)
    return submitted


def _find(word: str, runs_dir: Path) -> tuple[Path, Submitted]:
    """By the cluster's own number of the job, or the beginning of the folder's name."""
    known = []
    for path in sorted((runs_dir / FOLDER).glob("*/job.json")):
        with contextlib.suppress(msgspec.DecodeError, BadInput):
            known.append((path.parent, msgspec.json.decode(read_regular(path, MAX_RECORD_BYTES), type=Submitted)))
    found = [each for each in known if word == each[1].job or each[0].name.startswith(word)]
    if not found:
        jobs = ", ".join(submitted.job for _, submitted in known) or "none"
        start = flagperf_command("run", "CASE", "--cluster", "NAME", "--detach")
        raise BadInput(f"no detached run {word!r} in {runs_dir}; there are {jobs}; `{start}` makes one")
    return found[-1]
