"""A run that goes on, seen from other commands: called running, watched, and never taken for a failed one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import wait_for_step
from faulty_flagperf import RUN, assert_nothing_left, ended, environment, first_always, flagperf, start
from recorded_bundles import recorded_bundle

pytestmark = pytest.mark.run
FINISHED = recorded_bundle("distilbert")
LONG = (*RUN, "--set", "training.max_steps=100000", "fault.seconds=0.05")


Running = tuple[Any, Path, Path]
"""The command, the folder that it was started in, and its bundle."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """For tests that only look at it."""
    yield from _running(tmp_path_factory.mktemp("running"))


@pytest.fixture
def own_running(tmp_path: Path) -> Iterator[Running]:
    yield from _running(tmp_path)


def _running(cwd: Path) -> Iterator[Running]:
    process = start(cwd, *LONG)
    yield process, cwd, wait_for_step(cwd, process)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        ended(process)


def status(cwd: Path) -> list[str]:
    return [line["status"] for line in flagperf(cwd, "runs", "list", "--json").json]


def test_a_run_is_running_then_killed_and_only_then_removed(own_running: Running) -> None:
    process, tmp_path, bundle = own_running
    shutil.copytree(FINISHED, bundle.parent / "20200101T000000Z-distilbert-cpu-1x1-8b6590")
    assert status(tmp_path) == ["succeeded", "running"]
    shown = flagperf(tmp_path, "runs", "show", bundle.name)
    assert "running" in shown.stdout
    assert "failed" not in shown.stdout
    latest = flagperf(tmp_path, "runs", "path", "latest")
    assert bundle.name not in latest.stdout
    assert f"the newer {bundle.name} is running" in latest.stderr
    assert f"the newer {bundle.name}" not in flagperf(tmp_path, "runs", "path", "latest", "-q").stderr
    refused = flagperf(tmp_path, "runs", "rm", bundle.name, "--yes", "--force")
    assert (refused.code, "is running" in refused.stderr) == (2, True)
    process.kill()
    process.communicate()
    assert_nothing_left(tmp_path, bundle)
    assert status(tmp_path) == ["succeeded", "killed"]
    assert flagperf(tmp_path, "runs", "watch", bundle.name).code == 3
    assert flagperf(tmp_path, "runs", "rm", bundle.name, "--yes").code == 0
    assert status(tmp_path) == ["succeeded"]


def test_the_running_run_is_watched_without_its_name_and_is_not_disturbed(running: Running) -> None:
    process, tmp_path, bundle = running
    once = flagperf(tmp_path, "runs", "watch", "--once")
    assert once.code == 0
    assert bundle.name in once.stdout
    assert "faulty-0" in once.stdout
    assert "2.0/16.0 GiB" in once.stdout
    now = json.loads(flagperf(tmp_path, "runs", "watch", "--json").stdout)
    assert (now["id"], now["status"], now["is_over"]) == (bundle.name, "running", False)
    assert now["planned_steps"] == 100_000
    assert now["step"] == now["ranks"][0]["step"] > 0
    assert process.poll() is None
    assert not list(bundle.glob(".*"))


def test_a_watcher_in_a_pipe_follows_to_the_end_with_the_exit_code_of_the_run(own_running: Running) -> None:
    process, tmp_path, bundle = own_running
    watcher = start(tmp_path, "runs", "watch")
    assert watcher.stdout.readline().startswith("running  step ")
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    assert watcher.communicate(timeout=600)[0].splitlines()[-1] == f"{bundle.name} has ended: interrupted"
    assert watcher.returncode == 130
    again = flagperf(tmp_path, "runs", "watch", bundle.name)
    assert (again.code, again.stdout) == (130, f"{bundle.name} has ended: interrupted\n")


def test_a_watcher_ends_when_nobody_reads_it_any_more(running: Running) -> None:
    watcher = start(running[1], "runs", "watch")
    watcher.stdout.readline()
    watcher.stdout.close()
    assert watcher.wait(timeout=600) == 0
    watcher.stderr.close()
    assert running[0].poll() is None


@pytest.mark.parametrize("leave", first_always(b"q", b"\x03", signal.SIGTERM))
def test_a_screen_is_left_as_it_was_found_and_the_run_goes_on(running: Running, leave: bytes | signal.Signals) -> None:
    controller, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "flagperf", "runs", "watch"],
        cwd=running[1],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env=environment(TERM="xterm", COLUMNS="80", LINES="24"),
    )
    screen = _read_until(controller, b"q leaves, the run goes on")
    assert b"faulty F1" in screen
    assert b"\x1b[?1049h" in screen  # a screen of its own
    if isinstance(leave, bytes):
        os.write(controller, leave)
    else:
        watcher.send_signal(leave)
    rest = _read_until(controller, b"left; the run goes on")
    assert b"\x1b[?1049l" in rest
    assert watcher.wait(timeout=600) == 0
    assert termios.tcgetattr(terminal) == before
    assert running[0].poll() is None
    os.close(controller)
    os.close(terminal)


def _read_until(controller: int, wanted: bytes) -> bytes:
    content, deadline = b"", time.monotonic() + 600
    while wanted not in content:
        assert time.monotonic() < deadline, content
        if select.select([controller], [], [], 1)[0]:
            content += os.read(controller, 1 << 16)
    return content


@pytest.mark.full
def test_of_several_running_ones_none_is_chosen(running: Running) -> None:
    _, tmp_path, bundle = running
    other = start(tmp_path, *LONG)
    deadline = time.monotonic() + 600
    while status(tmp_path).count("running") < 2:
        assert time.monotonic() < deadline
    told = flagperf(tmp_path, "runs", "watch")
    assert told.code == 2
    assert "2 runs are running in runs; say which: " in told.stderr
    assert bundle.name in told.stderr
    other.send_signal(signal.SIGINT)
    ended(other)


def test_without_a_running_run_the_latest_is_named(tmp_path: Path) -> None:
    assert "there are no runs in runs" in flagperf(tmp_path, "runs", "watch").stderr
    assert flagperf(tmp_path, *RUN, "-q").code == 0
    told = flagperf(tmp_path, "runs", "watch")
    assert (told.code, "no run is running in runs; the latest that has finished is " in told.stderr) == (2, True)
    assert flagperf(tmp_path, "runs", "watch", "latest").code == 0
