"""The verb `run`: a node's share of a job, from the probe's baseline to the end of the last worker.

It takes a WorkOrder and prints messages, a line each. When stdin ends or SIGTERM arrives, everything that was started
is stopped: this one rule covers Ctrl-C, a broken connection, a cancelled allocation and a stopped container.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
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

POLL_SECONDS = 0.2

PROGRESS_SECONDS = 1.0
"""A node reports at most this often: the command reads the reports of all nodes."""

PARTS_SECONDS = 5.0
"""How often it sends what was added to its files. Of a node that is lost, at most so much is missing."""

CHUNK_BYTES = 1 << 18

SCRIPT_SECONDS = 60.0

_SOURCE_AND_PRINT = 'env -0; printf "\\0"; . "$1" >/dev/null; status=$?; env -0; exit $status'
"""Prints the variables before and after. Without `set -u`: vendors' scripts read variables that are not set."""


def answer_run(request: bytes, stdin: IO[bytes], stdout: IO[bytes]) -> int:
    order = msgspec.json.decode(request, type=WorkOrder)
    stop = set_when_closed(stdin)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    prefix = folder_prefix(order.job.run_id, order.node_index)
    with tempfile.TemporaryDirectory(prefix=prefix) as private, contextlib.ExitStack() as stack:
        sender = None
        if order.directory:
            stack.enter_context(at_work(Path(order.directory)))
        else:
            order = msgspec.structs.replace(order, directory=f"{private}/bundle")
            sender = PartsSender(Path(order.directory))
        directory = Path(order.directory)
        for folder in FOLDERS:
            (directory / folder).mkdir(parents=True, exist_ok=True)
        probe_request = ProbeRequest(
            vendor=order.job.vendor,
            plugins=order.job.plugins,
            node_index=order.node_index,
            devices=order.node.devices,
            interval_seconds=order.job.sample_seconds,
            path=str(directory / node_samples(order.node_index)),
        )
        log = directory / node_log("probe", order.node_index)
        marker = node_marker(order.job.run_id, order.node_index)
        with running_probe(probe_request, log, f"{marker}/probe") as probe:
            launcher = load_plugins(order.job.plugins).launcher(order.job.vendor)  # while the probe starts
            order_file = Path(private) / "order.json"
            order_file.write_bytes(msgspec.json.encode(order))
            probe.await_ready(stop)
            returncode = _run_workers(order, launcher, order_file, probe, sender, stop, stdout)
        if sender is not None:
            _send_parts(sender, stdout)
            _send(stdout, sender.complete())
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
    marker = f"{node_marker(order.job.run_id, order.node_index)}/workers"
    num_killed_before = oom_kills(node_machine())
    try:
        command = launcher.command(order.share(interface_of(order)), sys.executable, WORKER_MODULE)
        env_script = launcher.env_script(node_machine()) or ""
        workers = _start_workers(order, command, launcher, order_file, marker)
    except (FlagPerfError, OSError, subprocess.SubprocessError) as error:
        printed = getattr(error, "stderr", None) or b""  # of the vendor's script, whose last line says why
        why = ": ".join([str(error), *printed.decode(errors="replace").strip().splitlines()[-1:]])
        failure = Failure("failed", message("ending.workers_not_started", why=why))
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
        found = find_failure(order, Path(order.directory), launcher, command, workers.returncode)
    except PluginFailed as error:
        found = Failure("failed", message("tool.words", words=str(error)))
    except (FlagPerfError, OSError) as error:
        found = Failure("failed", message("ending.record_unreadable", why=str(error)))
    if found is not None and oom_kills(node_machine()) != num_killed_before:
        found = as_out_of_memory(found, workers.returncode)
    _send(stdout, WorkersEndedMessage(ended_ns, workers.returncode, found, probe.unrecorded))
    return workers.returncode


def interface_of(order: WorkOrder) -> str:
    """Return the interface over which this node's ranks reach the others; one node needs none."""
    if order.num_nodes == 1:
        return ""
    if order.interface:
        address_of(order.interface)  # raises, where the collective library would say something else, or wait
    return order.interface or interface_to(order.job.master_address)


def _start_workers(
    order: WorkOrder, command: LaunchCommand, launcher: Launcher, order_file: Path, marker: str
) -> subprocess.Popen[bytes]:
    environment = {
        **command.environment(worker_environment(launcher, node_machine())),
        "FLAGPERF_ORDER": str(order_file),
        "TMPDIR": str(order_file.parent),  # temporary files of workers and launcher are removed with ours
        MARKER: marker,
    }
    environment.pop("PYTHONOPTIMIZE", None)  # without docstrings transformers cannot be imported
    # In our own folder: `python -m` would import a user's file of the same name instead of a library.
    with (Path(order.directory) / node_log("launcher", order.node_index)).open("ab") as output:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
            cwd=order_file.parent,
            # Killed at once, also where it is stopped: nobody may be left to stop it. Its workers follow it.
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL),
        )


def worker_environment(launcher: Launcher, machine: Machine) -> dict[str, str]:
    """Return what workers inherit: the agent's environment, or what a vendor's script makes of it.

    A script whose last command is false (`[ -d x ] && ...`) returns an error and has still worked: an error counts only
    where the script set nothing. Then raise CalledProcessError.
    """
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


def _follow(
    order: WorkOrder,
    workers: subprocess.Popen[bytes],
    probe: ProbeProcess,
    sender: PartsSender | None,
    stop: threading.Event,
    stdout: IO[bytes],
) -> None:
    """Report progress, and send what was added to the files, until the workers have ended or are to stop."""
    directory = Path(order.directory)
    follower = ProgressFollower(
        [directory / rank_events(rank) for rank in order.ranks],
        directory / node_samples(order.node_index),
        order.node.devices,
        order.first_rank,
    )
    ended = threading.Event()

    def wait() -> None:
        workers.wait()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    is_running, due = True, time.monotonic()
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


def _send(stdout: IO[bytes], message: AgentMessage) -> None:
    """Print a message, read or not: a parent that has died closes stdin as well, which stops the run."""
    with contextlib.suppress(BrokenPipeError):
        stdout.write(msgspec.json.encode(message) + b"\n")
        stdout.flush()


class PartsSender:
    """Sends what is added to this node's files of a bundle as it is added. Whatever happens to the node, the connection
    or the allocation, the command has what was sent by then."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sent: dict[str, int] = {}

    def new_parts(self) -> Iterator[FilePart]:
        for name, path in self._files():
            size, sent = path.stat().st_size, self._sent.get(name, -1)
            if sent < 0 or size < sent:  # new, or cut: a line that was torn when the probe died
                self._sent[name] = min(size, max(sent, 0))
                yield FilePart(name, self._sent[name])
            with path.open("rb") as file:
                file.seek(self._sent[name])
                while content := file.read(CHUNK_BYTES):
                    yield FilePart(name, self._sent[name], content)
                    self._sent[name] += len(content)

    def complete(self) -> FilesComplete:
        """Return what the files are, after the last part: the command can tell that it has them."""
        return FilesComplete({name: sha256_of(path) for name, path in self._files()})

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder in FOLDERS:
            for path in sorted((self._directory / folder).iterdir()):
                if path.is_file() and not path.is_symlink():
                    yield str(path.relative_to(self._directory)), path


def find_failure(
    order: WorkOrder, directory: Path, launcher: Launcher, command: LaunchCommand, returncode: int
) -> Failure | None:
    """Return the rank that caused the failure, with the reason that it recorded. Return None where all succeeded.

    A rank that died without a reason is the cause, even where other ranks report errors that follow from its death.
    """
    ends: dict[int, WorkerEnded | None] = {}
    for rank in order.ranks:
        path = directory / rank_events(rank)
        events = read_events(path).events if path.exists() else ()
        ends[rank] = next((event for event in events if isinstance(event, WorkerEnded)), None)
    if returncode == 0 and all(end is not None and end.status == "succeeded" for end in ends.values()):
        return None
    log = node_log("launcher", order.node_index)
    if returncode and command.argv[1:] == ("-m", WORKER_MODULE):  # a single worker without a launcher
        listed = [RankFailure(order.first_rank, exit_status(returncode), exit_code=returncode)]
    else:
        listed = launcher.explain_failures((directory / log).read_text(errors="replace"))
    silent = [rank for rank, end in ends.items() if end is None]
    unrecorded = [failure for failure in listed if failure.rank in silent]
    for failure in unrecorded:
        if not failure.was_stopped:
            return _died(failure)
    # A process exited with 0 before its case ended. A launcher that lists failures lists all of them.
    left = set(silent) - {failure.rank for failure in listed} if listed or returncode == 0 else set()
    if left:
        return Failure("failed", _rank_failed(min(left), message("exit.left")), died=True)
    reported = [(end.t_ns, rank, end) for rank, end in ends.items() if end is not None and end.status != "succeeded"]
    if reported:
        _, rank, end = min(reported, key=lambda entry: entry[:2])
        return Failure(end.status, _rank_failed(rank, end.reason))
    if unrecorded:  # something outside the run stopped this rank
        return _died(unrecorded[0])
    last_lines = (directory / log).read_text(errors="replace").strip().splitlines()[-1:]
    if not last_lines:
        return Failure("failed", message("ending.launcher_silent", code=returncode, log=str(log)))
    return Failure("failed", message("ending.launcher_failed", code=returncode, why=last_lines[0], log=str(log)))


def _died(failure: RankFailure) -> Failure:
    why = failure.description if failure.exit_code is None else exit_message(failure.exit_code)
    return Failure("failed", _rank_failed(failure.rank, why), died=True)


def _rank_failed(rank: int, why: Message | str) -> Message:
    return message("ending.rank_failed", rank=rank, why=why, log=str(rank_log(rank)))


def as_out_of_memory(failure: Failure, returncode: int) -> Failure:
    """Turn a death without a word into one for lack of memory. The caller has seen that the kernel killed a process of
    this control group for that since the workers started."""
    if not failure.died and returncode != -signal.SIGKILL:
        return failure
    return Failure("out_of_memory", message("ending.oom_killed", why=failure.reason), died=failure.died)
