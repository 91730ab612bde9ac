"""Verb `run`: probe, workers, parts, why workers failed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from flagperf.agent.leftovers import MARKER, exit_message, folder_prefix, node_marker, set_when_closed, stop_workers
from flagperf.agent.node_checks import address_of, interface_to
from flagperf.agent.node_environment import node_machine
from flagperf.agent.probe_process import ProbeProcess, running_probe
from flagperf.api import LaunchCommand, Launcher, Machine, RankFailure
from flagperf.bundle.live_run import ProgressFollower
from flagperf.bundle.liveness import at_work
from flagperf.bundle.paths import FOLDERS, node_log, node_samples, rank_events, rank_log
from flagperf.errors import FlagPerfError, PluginFailed
from flagperf.event_files import read_events
from flagperf.events import WorkerEnded
from flagperf.files import sha256_of
from flagperf.kit.host_limits import oom_kills
from flagperf.messages import Message, message
from flagperf.plugins.installed import load_plugins
from flagperf.processes import die_with_parent
from flagperf.spec.job import WORKER_MODULE
from flagperf.spec.protocol import (
    AgentMessage,
    Failure,
    FilePart,
    FilesComplete,
    ProbeRequest,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
    WorkOrder,
)
from flagperf.units import exit_status

# PartsSender: what is added to this node's files of a bundle goes to the command as it is added. Whatever happens to
# the node, the connection or the allocation, the command has what was sent by then.


CHUNK_BYTES = 1 << 18


class PartsSender:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sent: dict[str, int] = {}

    def new_parts(self) -> Iterator[FilePart]:
        for name, path in self._files():
            yield from self._new_parts_of(name, path)

    def complete(self) -> FilesComplete:
        """After the last part: what the files are, so that the command can tell that it has them."""
        return FilesComplete({name: sha256_of(path) for name, path in self._files()})

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder in FOLDERS:
            for path in sorted((self._directory / folder).iterdir()):
                if path.is_file() and not path.is_symlink():
                    yield str(path.relative_to(self._directory)), path

    def _new_parts_of(self, name: str, path: Path) -> Iterator[FilePart]:
        size, sent = path.stat().st_size, self._sent.get(name, -1)
        if sent < 0 or size < sent:  # new, or cut: a line that was torn when the probe died
            self._sent[name] = min(size, max(sent, 0))
            yield FilePart(name, self._sent[name])
        with path.open("rb") as file:
            file.seek(self._sent[name])
            while content := file.read(CHUNK_BYTES):
                yield FilePart(name, self._sent[name], content)
                self._sent[name] += len(content)


# What workers inherit: the agent's environment, or what a vendor's script makes of it.


SCRIPT_SECONDS = 60.0

_SOURCE_AND_PRINT = 'env -0; printf "\\0"; . "$1" >/dev/null; status=$?; env -0; exit $status'
"""The variables before and after. Without `set -u`: vendors' scripts read variables that are not set."""


def worker_environment(launcher: Launcher, machine: Machine) -> dict[str, str]:
    """A script whose last command is false (`[ -d x ] && ...`) returns an error and has still worked: an error counts
    only where the script set nothing."""
    script = launcher.env_script(machine)
    if script is None:
        return dict(os.environ)
    done = subprocess.run(
        ["bash", "-c", _SOURCE_AND_PRINT, "bash", script],
        capture_output=True,
        check=False,
        timeout=SCRIPT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    before, _, after = done.stdout.partition(b"\0\0")
    made = _variables(after)
    if not made or (done.returncode and made == _variables(before)):
        raise subprocess.CalledProcessError(done.returncode, script, stderr=done.stderr)
    return made


def _variables(printed: bytes) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in os.fsdecode(printed).split("\0") if "=" in entry)


# Why a node's workers failed: the rank that caused it, with the reason that it recorded.


def find_failure(
    order: WorkOrder, directory: Path, launcher: Launcher, command: LaunchCommand, returncode: int
) -> Failure | None:
    """None where all succeeded. A rank that died without recording a reason is the cause, even where other ranks report
    errors that follow from its death."""
    ends = {rank: _end(directory, rank) for rank in order.ranks}
    if returncode == 0 and all(end is not None and end.status == "succeeded" for end in ends.values()):
        return None
    log = directory / node_log("launcher", order.node_index)
    if returncode and is_worker_itself(command):
        listed = [RankFailure(order.first_rank, exit_status(returncode), exit_code=returncode)]
    else:
        listed = launcher.explain_failures(log.read_text(errors="replace"))
    silent = [rank for rank, end in ends.items() if end is None]
    failure = _died(silent, listed) or _left(silent, listed, returncode) or _reported(ends) or _stopped(silent, listed)
    return failure or Failure("failed", _launcher_failed(returncode, log, str(node_log("launcher", order.node_index))))


def as_out_of_memory(failure: Failure, returncode: int) -> Failure:
    """Where the kernel has killed a process of this control group for lack of memory since the workers started: what
    died without a word died of that."""
    if not failure.died and returncode != -signal.SIGKILL:
        return failure
    return Failure("out_of_memory", message("ending.oom_killed", why=failure.reason), died=failure.died)


def _launcher_failed(returncode: int, log: Path, shown_log: str) -> Message:
    lines = log.read_text(errors="replace").strip().splitlines()
    if not lines:
        return message("ending.launcher_silent", code=returncode, log=shown_log)
    return message("ending.launcher_failed", code=returncode, why=lines[-1], log=shown_log)


def is_worker_itself(command: LaunchCommand) -> bool:
    """A single worker may be started without a launcher: its return code is then the rank's."""
    return command.argv[1:] == ("-m", WORKER_MODULE)


def _died(silent: Sequence[int], listed: Sequence[RankFailure]) -> Failure | None:
    """A rank that ended without a record, and not because the launcher stopped it."""
    causes = [failure for failure in listed if failure.rank in silent and not failure.was_stopped]
    return _unrecorded(causes[0].rank, _why(causes[0])) if causes else None


def _left(silent: Sequence[int], listed: Sequence[RankFailure], returncode: int) -> Failure | None:
    """A rank whose process exited with 0 before its case ended. A launcher that lists failures lists all of them."""
    failed = {failure.rank for failure in listed}
    left = [rank for rank in silent if rank not in failed] if listed or returncode == 0 else []
    return _unrecorded(left[0], message("exit.left")) if left else None


def _reported(ends: Mapping[int, WorkerEnded | None]) -> Failure | None:
    """The first rank that recorded why it failed."""
    failed = [(end.t_ns, rank, end) for rank, end in ends.items() if end is not None and end.status != "succeeded"]
    if not failed:
        return None
    _, rank, end = min(failed, key=lambda entry: entry[:2])
    return Failure(end.status, _rank_failed(rank, end.reason))


def _stopped(silent: Sequence[int], listed: Sequence[RankFailure]) -> Failure | None:
    """No other rank is the cause: something outside the run stopped this one."""
    return next((_unrecorded(each.rank, _why(each)) for each in listed if each.rank in silent), None)


def _unrecorded(rank: int, why: Message | str) -> Failure:
    return Failure("failed", _rank_failed(rank, why), died=True)


def _rank_failed(rank: int, why: Message | str) -> Message:
    return message("ending.rank_failed", rank=rank, why=why, log=str(rank_log(rank)))


def _why(failure: RankFailure) -> Message | str:
    return failure.description if failure.exit_code is None else exit_message(failure.exit_code)


def _end(directory: Path, rank: int) -> WorkerEnded | None:
    path = directory / rank_events(rank)
    if not path.exists():
        return None
    return next((event for event in read_events(path).events if isinstance(event, WorkerEnded)), None)


# The verb `run`: a node's share of a job, from the probe's baseline to the end of the last worker.
#
# Takes a WorkOrder, prints messages, a line each. When stdin ends or SIGTERM arrives, everything that was started is
# stopped: this one rule covers Ctrl-C, a broken connection, a cancelled allocation and a stopped container.


POLL_SECONDS = 0.2

PROGRESS_SECONDS = 1.0
"""A node reports at most this often: the command reads the reports of all nodes."""

PARTS_SECONDS = 5.0
"""How often it sends what was added to its files. Of a node that is lost, at most so much is missing."""


def answer_run(request: bytes, stdin: IO[bytes], stdout: IO[bytes]) -> int:
    order = msgspec.json.decode(request, type=WorkOrder)
    stop = set_when_closed(stdin)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix=folder_prefix(order.job.run_id, order.node_index)) as private:
        order_file = Path(private) / "order.json"
        if order.directory:
            with at_work(Path(order.directory)):
                return _run(order, order_file, None, stop, stdout)
        own = Path(private) / "bundle"
        sender = PartsSender(own)
        code = _run(msgspec.structs.replace(order, directory=str(own)), order_file, sender, stop, stdout)
        _send_parts(sender, stdout)
        _send(stdout, sender.complete())
        return code


def _run(
    order: WorkOrder, order_file: Path, sender: PartsSender | None, stop: threading.Event, stdout: IO[bytes]
) -> int:
    for folder in FOLDERS:
        (Path(order.directory) / folder).mkdir(parents=True, exist_ok=True)
    log = Path(order.directory) / node_log("probe", order.node_index)
    marker = node_marker(order.job.run_id, order.node_index)
    with running_probe(_probe_request(order), log, f"{marker}/probe") as probe:
        launcher = load_plugins(order.job.plugins).launcher(order.job.vendor)  # while the probe starts
        order_file.write_bytes(msgspec.json.encode(order))
        probe.await_ready(stop)
        returncode = _run_workers(order, launcher, order_file, probe, sender, stop, stdout)
    return 0 if returncode == 0 else 3


def _run_workers(
    order: WorkOrder,
    launcher: Launcher,
    order_file: Path,
    probe: ProbeProcess,
    sender: PartsSender | None,
    stop: threading.Event,
    stdout: IO[bytes],
) -> int:
    directory = Path(order.directory)
    marker = f"{node_marker(order.job.run_id, order.node_index)}/workers"
    log = directory / node_log("launcher", order.node_index)
    num_killed_before = oom_kills(node_machine())
    try:
        command = launcher.command(order.share(_interface(order)), sys.executable, WORKER_MODULE)
        env_script = launcher.env_script(node_machine()) or ""
        workers = _start_workers(command, launcher, order_file, marker, log)
    except (FlagPerfError, OSError, subprocess.SubprocessError) as error:
        failure = Failure("failed", message("ending.workers_not_started", why=_describe(error)))
        _send(stdout, WorkersEndedMessage(time.monotonic_ns(), 1, failure))
        return 1
    _send(stdout, WorkersLaunchedMessage(time.monotonic_ns(), command, env_script))
    try:
        probe.tell_launcher_pid(workers.pid)
        _follow(order, workers, probe, sender, stop, stdout)
    finally:
        stop_workers(workers, marker)
    ended_ns = time.monotonic_ns()
    try:
        found = find_failure(order, directory, launcher, command, workers.returncode)
    except PluginFailed as error:
        found = Failure("failed", message("tool.words", words=str(error)))
    except (FlagPerfError, OSError) as error:
        found = Failure("failed", message("ending.record_unreadable", why=str(error)))
    if found is not None and oom_kills(node_machine()) != num_killed_before:
        found = as_out_of_memory(found, workers.returncode)
    _send(stdout, WorkersEndedMessage(ended_ns, workers.returncode, found, probe.unrecorded))
    return workers.returncode


def _interface(order: WorkOrder) -> str:
    if order.num_nodes == 1:
        return ""
    if order.interface:
        address_of(order.interface)  # raises, where the collective library would say something else, or wait
    return order.interface or interface_to(order.job.master_address)


def _start_workers(
    command: LaunchCommand, launcher: Launcher, order_file: Path, marker: str, log: Path
) -> subprocess.Popen[bytes]:
    environment = {
        **command.environment(worker_environment(launcher, node_machine())),
        "FLAGPERF_ORDER": str(order_file),
        "TMPDIR": str(order_file.parent),  # temporary files of workers and launcher are removed with ours
        MARKER: marker,
    }
    environment.pop("PYTHONOPTIMIZE", None)  # without docstrings transformers cannot be imported
    # In our own folder: `python -m` would import a user's file of the same name instead of a library.
    with log.open("ab") as output:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            cwd=order_file.parent,
            preexec_fn=_die_with_agent,
        )


def _die_with_agent() -> None:
    """At once, also where it is stopped: nobody may be left to stop it. Its workers follow it."""
    die_with_parent(signal.SIGKILL)


def _describe(error: Exception) -> str:
    """With the last line that the vendor's script printed on stderr."""
    printed = getattr(error, "stderr", None)
    last_line = printed.decode(errors="replace").strip().splitlines()[-1:] if printed else []
    return ": ".join([str(error), *last_line])


def _follow(
    order: WorkOrder,
    workers: subprocess.Popen[bytes],
    probe: ProbeProcess,
    sender: PartsSender | None,
    stop: threading.Event,
    stdout: IO[bytes],
) -> None:
    directory = Path(order.directory)
    follower = ProgressFollower(
        [directory / rank_events(rank) for rank in order.ranks],
        directory / node_samples(order.node_index),
        order.node.devices,
        order.first_rank,
    )
    ended, is_running, due = _set_at_end(workers), True, time.monotonic()
    parts_due = due
    while is_running and not stop.is_set():
        is_running = not ended.wait(POLL_SECONDS)  # before reading, so that their last events are read too
        probe.poll()
        if is_running and time.monotonic() < due:
            continue
        progress = follower.poll()
        if progress is not None:
            _send(stdout, progress)
        due = time.monotonic() + PROGRESS_SECONDS
        if sender is not None and time.monotonic() >= parts_due:
            _send_parts(sender, stdout)
            parts_due = time.monotonic() + PARTS_SECONDS


def _send_parts(sender: PartsSender, stdout: IO[bytes]) -> None:
    for part in sender.new_parts():
        _send(stdout, part)


def _set_at_end(workers: subprocess.Popen[bytes]) -> threading.Event:
    ended = threading.Event()

    def wait() -> None:
        workers.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def _probe_request(order: WorkOrder) -> ProbeRequest:
    job, node = order.job, order.node
    return ProbeRequest(
        vendor=job.vendor,
        plugins=job.plugins,
        node_index=node.index,
        devices=node.devices,
        interval_seconds=job.sample_seconds,
        path=str(Path(order.directory) / node_samples(node.index)),
    )


def _send(stdout: IO[bytes], message: AgentMessage) -> None:
    """A parent that has died closes stdin as well, which stops this agent."""
    with contextlib.suppress(BrokenPipeError):
        stdout.write(msgspec.json.encode(message) + b"\n")
        stdout.flush()
