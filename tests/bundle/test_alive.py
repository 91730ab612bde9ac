"""Whether the command of a run is alive: by its lock, else by its process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from flagperf.bundle.bundle import create_bundle, new_bundle, read_bundle
from flagperf.bundle.liveness import Parent, holding, is_held, parent_of, this_pid_namespace
from flagperf.bundle.paths import PARENT_EVENTS
from flagperf.event_files import EventWriter, this_clock
from flagperf.events import EVENT_SCHEMA, Clock, RunStarted
from run_builders import make_run

RUN_ID = "20260101T000000Z-demo-cpu-1x1-abc123"
HOLD = """
import pathlib, sys, time
from flagperf.bundle.liveness import holding
with holding(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return create_bundle(tmp_path, make_run(RUN_ID), ())


def started(bundle: Path, *, clock: Clock | None = None, t_ns: int | None = None, **fields: object) -> None:
    first = RunStarted(
        time.monotonic_ns() if t_ns is None else t_ns,
        EVENT_SCHEMA,
        clock or this_clock(),
        pid_namespace=this_pid_namespace(),
    )
    with EventWriter(bundle / PARENT_EVENTS) as writer:
        writer.write(msgspec.structs.replace(first, **fields))


def elsewhere(**fields: object) -> Clock:
    return msgspec.structs.replace(this_clock(), **fields)


@pytest.fixture
def holder(bundle: Path) -> Iterator[subprocess.Popen[str]]:
    yield from _holding(bundle)


def _holding(bundle: Path, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*prefix, sys.executable, "-c", HOLD, str(bundle)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_parent_is_alive_while_it_holds_the_lock_and_gone_when_it_was_killed(
    bundle: Path, holder: subprocess.Popen[str]
) -> None:
    started(bundle, locked=True)
    assert [is_held(bundle) for _ in range(3)] == [True] * 3  # looking does not take it away
    assert parent_of(bundle) == Parent("running", this_clock().host)
    holder.kill()
    holder.wait()
    assert parent_of(bundle) == Parent("killed", this_clock().host)


def test_children_of_the_parent_do_not_keep_its_lock(bundle: Path) -> None:
    with holding(bundle):
        child = subprocess.Popen(["sleep", "600"])
        assert is_held(bundle)
    try:
        assert not is_held(bundle)
    finally:
        child.kill()
        child.wait()


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="needs root and unshare")
def test_a_parent_in_a_container_is_seen_although_its_number_means_nothing_here(bundle: Path) -> None:
    for _ in _holding(bundle, "unshare", "--pid", "--fork", "--kill-child"):
        started(bundle, clock=elsewhere(host="container", pid=1), locked=True, pid_namespace="pid:[1]")
        assert parent_of(bundle) == Parent("running", "container")
    deadline = time.monotonic() + 600  # it ends when the kernel has told it that unshare has
    while is_held(bundle) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert parent_of(bundle) == Parent("killed", "container")


def test_a_bundle_is_held_before_anybody_can_see_it(tmp_path: Path) -> None:
    with new_bundle(tmp_path, make_run(RUN_ID), ()) as path:
        assert parent_of(path).state == "running"
        assert read_bundle(path).unfinished == "running"
    assert parent_of(path) == Parent("unknown")  # it never said where it is


# --- without a lock: file systems that have none --------------------------------------------------------------------


def test_without_a_lock_the_process_is_looked_for_by_its_number(bundle: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        started(bundle, clock=elsewhere(pid=process.pid), t_ns=time.monotonic_ns() + 10**9)
        assert parent_of(bundle).state == "running"
        process.kill()
        process.wait()
        assert parent_of(bundle).state == "killed"


def test_a_later_process_with_the_same_number_is_not_the_parent(bundle: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        started(bundle, clock=elsewhere(pid=process.pid), t_ns=1)
        assert parent_of(bundle).state == "killed"
        process.kill()


def test_a_process_that_nobody_waited_for_is_gone(bundle: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        started(bundle, clock=elsewhere(pid=process.pid), t_ns=time.monotonic_ns() + 10**9)
        while "Z" not in Path(f"/proc/{process.pid}/stat").read_text():
            time.sleep(0.01)
        assert parent_of(bundle).state == "killed"


def test_a_number_of_another_namespace_says_nothing(bundle: Path) -> None:
    started(bundle, clock=elsewhere(host="container"), pid_namespace="pid:[1]")
    assert parent_of(bundle) == Parent("unknown", "container")


# --- other machines -------------------------------------------------------------------------------------------------


def test_of_another_machine_nothing_is_known_and_it_is_named(bundle: Path) -> None:
    started(bundle, clock=elsewhere(host="node17", boot_id="another"), locked=True)
    assert parent_of(bundle) == Parent("unknown", "node17")


def test_a_machine_that_was_started_again_took_its_parents_with_it(bundle: Path) -> None:
    started(bundle, clock=elsewhere(boot_id="before"), locked=True)
    assert parent_of(bundle).state == "unknown"  # written since: another machine of this name
    for file in (bundle / "events").iterdir():
        os.utime(file, (1, 1))
    assert parent_of(bundle).state == "killed"


def test_a_command_of_a_queue_that_says_that_it_has_ended_is_gone(bundle: Path) -> None:
    started(bundle, clock=elsewhere(host="node17", boot_id="another"), locked=True)
    folder = bundle.parent / "detached" / "20260101T000000Z-demo-1"
    folder.mkdir(parents=True)
    (folder / "begun.json").write_text(json.dumps({"run_id": RUN_ID}))
    assert parent_of(bundle).state == "unknown"
    (folder / "finished.json").write_text('{"exit_code":3}')
    assert parent_of(bundle).state == "killed"


@pytest.mark.parametrize("content", ["", "{", '{"t_ns":1}\n', "[]\n"])
def test_a_file_without_a_first_event_says_nothing(bundle: Path, content: str) -> None:
    (bundle / PARENT_EVENTS).write_text(content)
    assert parent_of(bundle) == Parent("unknown")


def test_what_is_no_file_is_not_opened(bundle: Path) -> None:
    (bundle / PARENT_EVENTS).unlink()
    os.mkfifo(bundle / PARENT_EVENTS)
    assert parent_of(bundle) == Parent("unknown")
    (bundle / PARENT_EVENTS).unlink()
    (bundle / PARENT_EVENTS).symlink_to("/dev/zero")
    assert parent_of(bundle) == Parent("unknown")
