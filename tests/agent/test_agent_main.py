"""What is the same for every mode: the usage, and the hello that comes before everything else."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from flagperf import version
from flagperf.agent.__main__ import MODES
from flagperf.spec.protocol import hello_line


def agent(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "flagperf.agent", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=600)


@pytest.mark.parametrize("mode", [[], ["dance"], ["describe"]])
def test_an_unknown_mode_is_answered_with_the_usage(mode: list[str]) -> None:
    done = agent(*mode)
    assert done.returncode == 2
    assert b"usage: python -m flagperf.agent serve|probe" in done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_a_command_of_another_version_is_refused_before_its_request_is_decoded(mode: str) -> None:
    done = agent(mode, stdin=hello_line("9.8.7") + b"a request in a form of the future\n")
    assert done.returncode == 3
    assert done.stdout == hello_line(version())
    assert done.stderr.decode().strip() == (
        f"the command that started it has flagperf 9.8.7, this agent on {socket.gethostname()} has flagperf "
        f"{version()}: both need the same version; install flagperf=={version()} there, "
        "or flagperf==9.8.7 here"
    )


@pytest.mark.parametrize("first_line", [b"", b'{"vendor":"cpu"}\n', b"\xff\n"])
def test_a_command_that_says_no_version_is_refused(first_line: bytes) -> None:
    done = agent("serve", stdin=first_line)
    assert done.returncode == 3
    assert b"did not send its flagperf version" in done.stderr
