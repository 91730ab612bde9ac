"""What a run loses while it goes on: its reader, its disk, its bundle, its terminal. Never its workers or its word."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from e2e_flagperf import bundle_of, environment, flagperf, interrupt, processes_of, read_run, said, start, wait_for_step

pytestmark = pytest.mark.run


def test_a_run_whose_reader_has_left_keeps_its_exit_code_and_its_bundle(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=raise", stdout=writing)
    os.close(writing)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 3
    assert "rank 0: ValueError" in stderr and "Traceback" not in stderr
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def test_a_file_that_cannot_grow_ends_the_run_with_one_message(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk: a worker's write fails in the middle of a line."""

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    settings = ["training.max_steps=2000", "training.step_seconds=0.001"]
    # A Python that writes its .pyc files under such a limit may leave half of one.
    env = {**environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    process = start(tmp_path, "run", "trouble", "--set", *settings, preexec_fn=limit_files, env=env)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 3
    assert "rank 0: OSError: [Errno 27] File too large" in stderr and "Traceback" not in stderr
    assert not processes_of(bundle_of(tmp_path))
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def test_a_terminal_that_hangs_up_interrupts_its_run(tmp_path: Path) -> None:
    # pytest itself may run under nohup, which children inherit
    hang_up = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=hang", stderr=subprocess.DEVNULL, **hang_up)
    bundle = wait_for_step(tmp_path, process)
    assert interrupt(process, signal.SIGHUP).code == 130
    assert said(read_run(bundle)) == ("interrupted", "stopped by SIGHUP")
    assert (bundle / "MANIFEST").exists()
    assert not processes_of(bundle)
