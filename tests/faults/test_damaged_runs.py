"""What happens to a run whose files, disk or memory fail under it: an ending, sealed, with its reason."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, metric, read_run, said, wait_for_step
from faulty_flagperf import RUN, SITE, assert_nothing_left, ended, first_always, flagperf, start

from flagperf import run as run_module
from flagperf.bundle import bundle as store
from flagperf.fleet.fleet import Fleet
from flagperf.fleet.reach import reach_nodes
from flagperf.fleet.signals import raise_on_signals, signals_restored
from flagperf.plan.plan import Plan, make_plan
from flagperf.plugins.installed import load_plugins
from flagperf.run import Session
from flagperf.spec.job import RunSpec

MEMORY_GROUP = Path("/sys/fs/cgroup/memory")


@pytest.mark.parametrize(
    ("damage", "words"),
    first_always(
        ("damage_events", "rank-00000.jsonl: line [0-9]+ is not a valid event"),
        ("damage_samples", "node-000.jsonl: line [0-9]+ is not a valid event"),
        ("damage_parent", "parent.jsonl: line [0-9]+ is not a valid event"),
        ("replace_events", "rank-00000.jsonl is a folder, not a regular file"),
    ),
)
def test_a_record_that_is_damaged_during_the_run_is_a_failed_run(tmp_path: Path, damage: str, words: str) -> None:
    done = flagperf(tmp_path, *RUN, "--set", f"fault.mode={damage}")
    bundle = bundle_of(tmp_path)
    status, reason = said(read_run(bundle))
    assert (done.code, status) == (3, "failed")
    assert re.search(f"cannot be read: .*{words}", reason)
    assert (bundle / "MANIFEST").exists()
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 3
    assert_nothing_left(tmp_path, bundle)


def test_a_probe_that_cannot_write_leaves_its_figures_out_and_the_run_goes_on(tmp_path: Path) -> None:
    arguments = ("--sample-seconds", "0.1", "--set", "training.max_steps=100")
    done = flagperf(tmp_path, *RUN, *arguments, fault="available:full")
    assert done.code == 0, done.stderr
    run = read_run(bundle_of(tmp_path))
    assert metric(run, "p_core")["value"] > 0
    used = metric(run, "mem_used")
    assert (used.get("value"), used["reason"]) == (None, "invalid_telemetry")
    assert used["detail"].startswith("node 0: the probe ended early (exit code 3)")
    assert "node-000.jsonl: File too large" in used["detail"]
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def test_a_folder_that_is_removed_during_the_run_is_a_message(tmp_path: Path) -> None:
    process = start(tmp_path, *RUN, "--set", "fault.mode=hang")
    bundle = wait_for_step(tmp_path, process)
    shutil.rmtree(bundle)
    process.send_signal(signal.SIGINT)
    done = ended(process)
    assert done.code == 3
    assert "it was removed during the run" in done.stderr
    assert_nothing_left(tmp_path, bundle)


def test_a_full_disk_is_a_message(tmp_path: Path) -> None:
    """On a file system of 256 KiB, which one worker fills."""
    disk = tmp_path / "runs"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        done = flagperf(tmp_path, *RUN, "--set", "training.max_steps=20000", "--set", "fault.seconds=0")
        assert done.code == 3
        assert "No space left on device" in done.stderr
        assert_nothing_left(tmp_path, disk)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("name", first_always(b"runs-\xff", b"runs-\xed\xa0\x80"))
def test_a_runs_folder_that_is_not_utf_8_is_refused_before_the_start(tmp_path: Path, name: bytes) -> None:
    done = flagperf(tmp_path, *RUN, "--runs-dir", os.fsdecode(name))
    assert (done.code, done.stdout) == (2, "")
    assert "is not UTF-8 in this locale" in done.stderr and "--runs-dir" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]


@pytest.mark.full
def test_a_caller_that_ignores_sigchld_and_python_without_docstrings_change_nothing(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        *RUN,
        variables={"PYTHONOPTIMIZE": "2"},
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    )
    assert ended(process).code == 0
    log = (bundle_of(tmp_path) / "logs" / "rank-00000.log").read_text()
    assert "optimize=0" in log


# --- memory


def test_what_the_kernel_kills_for_lack_of_memory_is_out_of_memory(tmp_path: Path) -> None:
    group = MEMORY_GROUP / f"flagperf-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(400 << 20))
    except OSError:
        pytest.skip("this user may not make a control group with a memory limit (version 1)")
    try:
        arguments = (*RUN, "--set", "fault.mode=fill")
        process = start(tmp_path, *arguments, preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        done = ended(process)
    finally:
        group.rmdir()
    status, reason = said(read_run(bundle_of(tmp_path)))
    assert (done.code, status) == (4, "out_of_memory")
    assert "rank 0: killed by SIGKILL" in reason and "the kernel killed a process of this control group" in reason
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


# --- a signal while the bundle is made


@pytest.fixture(scope="module")
def planned() -> Iterator[tuple[Plan, Fleet]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SITE))
        spec, plugins = RunSpec("sleeper", vendor="cpu"), load_plugins()
        with reach_nodes(spec, plugins) as fleet:
            yield make_plan(spec, plugins, fleet), fleet


@pytest.mark.parametrize(("number", "num_files"), [(signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGHUP, 2)])
def test_a_signal_while_the_bundle_is_made_leaves_no_folder(
    tmp_path: Path, planned: tuple[Plan, Fleet], monkeypatch: pytest.MonkeyPatch, number: int, num_files: int
) -> None:
    """Before environment.json, before run.json, and after both."""
    plan, fleet = planned
    made, write, writer = [], store.write_atomically, run_module.run_job

    def interrupted(path: Path, content: bytes) -> None:
        if len(made) == num_files:
            os.kill(os.getpid(), number)
        made.append(path)
        write(path, content)

    def started(*arguments: object) -> object:
        if num_files == 2:
            os.kill(os.getpid(), number)
        return writer(*arguments)

    monkeypatch.setattr(store, "write_atomically", interrupted)
    monkeypatch.setattr(run_module, "run_job", started)
    with signals_restored(), pytest.raises(KeyboardInterrupt):
        raise_on_signals()
        Session(tmp_path / "runs", fleet, {"": plan}).run(plan)
    assert not list(tmp_path.glob("runs/*"))
