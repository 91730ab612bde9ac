"""On a terminal: colour, a live bar with steps, throughput, loss, memory and time left. In a pipe: none of that."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_flagperf import SITE, flagperf

pytestmark = pytest.mark.run

LONG_ENOUGH = ("--set", "training.max_steps=150")


def run_on_terminal(cwd: Path, *arguments: str) -> str:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "flagperf", *arguments],
        cwd=cwd,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(SITE), "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"},
    )
    os.close(slave)
    printed = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            break
        if not chunk:
            break
        printed += chunk
    os.close(master)
    assert process.wait() == 0, printed
    return printed.decode()


def test_a_terminal_sees_progress_live(tmp_path: Path) -> None:
    printed = run_on_terminal(tmp_path, "run", "trouble", *LONG_ENOUGH)
    assert "\x1b[" in printed
    for part in ("/150", "samples/s", "loss", "mem", "ETA"):
        assert part in printed


def test_a_pipe_sees_plain_lines(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", *LONG_ENOUGH)
    assert "\x1b" not in done.stdout + done.stderr
    assert "/150  " in done.stderr
    assert "━" not in done.stderr


def test_quiet_says_nothing_but_the_result(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "-q")
    assert done.code == 0
    assert done.stderr == ""
    assert "p_core" in done.stdout
