"""What becomes of the exit code when stdout is a pipe whose reader has left, a full disk, or closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flagperf.bundle.bundle import create_bundle
from run_builders import make_run

FLAGPERF = [sys.executable, "-m", "flagperf"]


def flagperf(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FLAGPERF, *arguments], stderr=subprocess.PIPE, text=True, timeout=300, **options)


@pytest.fixture
def gone_reader() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def unfinished(tmp_path: Path) -> str:
    """A bundle that does not verify, since it has no MANIFEST."""
    return str(create_bundle(tmp_path, make_run("20260101T000000Z-demo-cpu-1x1-abc123"), ()))


def test_a_reader_that_has_left_is_nobodys_mistake(gone_reader: int) -> None:
    done = flagperf("cases", "list", stdout=gone_reader)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_left_does_not_change_the_verdict(gone_reader: int, unfinished: str) -> None:
    assert flagperf("runs", "verify", unfinished, stdout=gone_reader).returncode == 3
    assert flagperf("runs", "verify", unfinished, "--json", stdout=gone_reader).returncode == 3


@pytest.mark.parametrize("arguments", [("cases", "list"), ("cases", "list", "--json"), ("--help",), ("--version",)])
def test_a_full_disk_under_stdout_is_said_once(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = flagperf(*arguments, stdout=full)
    assert (done.returncode, done.stderr) == (3, "flagperf: cannot write to stdout: No space left on device\n")


def test_a_commands_own_exit_code_counts_more_than_lost_output() -> None:
    with Path("/dev/full").open("w") as full:
        assert flagperf("cases", "show", "distilbrt", stdout=full).returncode == 2


def test_a_closed_stdout_is_said_once_and_taken_by_no_other_file() -> None:
    done = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", *FLAGPERF, "cases", "list"], capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "flagperf: cannot write to stdout: it is closed\n"


def test_without_any_stream_the_exit_code_is_all_that_is_left() -> None:
    command = ["bash", "-c", '"$@" <&- >&- 2>&-', "bash", *FLAGPERF]
    assert subprocess.run([*command, "cases", "show", "distilbrt"], timeout=300).returncode == 2
    assert subprocess.run([*command, "cases", "list"], timeout=300).returncode == 3


def test_progress_that_nobody_reads_does_not_end_a_command(gone_reader: int) -> None:
    done = subprocess.run([*FLAGPERF, "vendors", "list"], stdout=subprocess.PIPE, stderr=gone_reader, timeout=300)
    assert done.returncode == 0
    assert b"cpu" in done.stdout
