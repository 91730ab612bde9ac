"""On a terminal: colour, a live bar with steps, throughput, loss, memory and time left. In a pipe: none of that."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_flagperf import SITE, flagperf, interrupt, start

pytestmark = pytest.mark.run

UNTIL_INTERRUPTED = ("run", "trouble", "--set", "trouble.mode=hang")
"""Stands still in the middle of its steps."""


def test_a_terminal_sees_progress_live(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "flagperf", *UNTIL_INTERRUPTED],
        cwd=tmp_path,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": str(SITE), "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"},
    )
    os.close(slave)
    printed = ""
    while not all(part in printed for part in ("\x1b[", "/30", "samples/s", "loss", "mem", "ETA")):
        part = _read(master)
        assert part, printed
        printed += part
    process.send_signal(signal.SIGINT)
    while rest := _read(master):
        printed += rest
    os.close(master)
    assert process.wait() == 130, printed


def _read(master: int) -> str:
    """Nothing when the other side is closed, which Linux calls EIO."""
    try:
        return os.read(master, 65536).decode(errors="replace")
    except OSError:
        return ""


def test_a_pipe_sees_plain_lines(tmp_path: Path) -> None:
    process = start(tmp_path, *UNTIL_INTERRUPTED)
    assert process.stderr is not None
    said = ""
    while "/30  " not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    done = interrupt(process)
    assert "\x1b" not in said + done.stdout + done.stderr
    assert "━" not in said + done.stderr


def test_quiet_says_nothing_but_the_result(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "-q")
    assert done.code == 0
    assert done.stderr == ""
    assert "p_core" in done.stdout
