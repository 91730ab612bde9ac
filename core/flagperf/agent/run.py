"""The verb `run`: a node's share of a job, from the probe's baseline to the end of the last worker.

Takes a WorkOrder, prints messages, a line each. When stdin ends or SIGTERM arrives, everything that was started is
stopped: this one rule covers Ctrl-C, a broken connection, a cancelled allocation and a stopped container.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

import msgspec

from flagperf.agent.env_script import worker_environment
from flagperf.agent.parts import PartsSender
from flagperf.agent.probe_process import ProbeProcess, running_probe
from flagperf.agent.processes import MARKER, node_marker, set_when_closed, stop_workers
from flagperf.agent.progress import ProgressFollower
from flagperf.agent.rendezvous import address_of, interface_to
from flagperf.agent.simulation import node_machine
from flagperf.agent.watchdog import folder_prefix
from flagperf.agent.worker_failure import as_out_of_memory, find_failure
from flagperf.api import LaunchCommand, Launcher
from flagperf.errors import FlagPerfError, PluginFailed
from flagperf.kit.host_limits import oom_kills
from flagperf.kit.process_tree import die_with_parent
from flagperf.messages import message
from flagperf.plugins.installed import load_plugins
from flagperf.spec import (
    WORKER_MODULE,
    AgentMessage,
    Failure,
    ProbeRequest,
    WorkersEndedMessage,
    WorkersLaunchedMessage,
    WorkOrder,
)
from flagperf.store.in_use import at_work
from flagperf.store.paths import FOLDERS, node_log, node_samples, rank_events

POLL_SECONDS = 0.2

PROGRESS_SECONDS = 1.0
"""A node reports at most this often: the command reads the reports of all nodes."""

PARTS_SECONDS = 5.0
"""How often it sends what was added to its files. Of a node that is lost, at most so much is missing."""


def main(request: bytes, stdin: IO[bytes], stdout: IO[bytes]) -> int:
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
