from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flagperf.api.machine import _abandon
from flagperf.kit import run_tool
from live_processes import is_alive


def test_a_tool_that_works_gives_its_output() -> None:
    output = run_tool([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"])
    assert (output.returncode, output.stdout, output.stderr, output.problem) == (0, "out\n", "err\n", "")
    assert output.ok


def test_a_tool_that_fails_gives_its_code_and_words() -> None:
    output = run_tool([sys.executable, "-c", "import sys; sys.exit('no device')"])
    assert (output.returncode, output.stderr, output.ok) == (1, "no device\n", False)


def test_a_tool_that_is_killed_is_not_ok() -> None:
    output = run_tool([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert (output.returncode, output.ok) == (-9, False)


def test_a_missing_tool_is_a_problem_and_no_exception() -> None:
    output = run_tool(["no-such-smi", "--query"])
    assert (output.returncode, output.ok) == (None, False)
    assert output.problem == "no-such-smi could not be started: No such file or directory"


def test_a_file_that_is_no_program_is_a_problem(tmp_path: Path) -> None:
    tool = tmp_path / "smi"
    tool.write_text("not for you")
    assert run_tool([str(tool)]).problem == f"{tool} could not be started: Permission denied"
    tool.chmod(0o755)
    assert run_tool([str(tool)]).problem == f"{tool} could not be started: Exec format error"


def test_a_tool_that_hangs_is_stopped() -> None:
    output = run_tool(["sleep", "3600"], timeout_seconds=0.3)
    assert (output.returncode, output.problem) == (None, "sleep did not end within 0.3 s")


def test_a_tool_whose_child_hangs_with_its_pipe_is_stopped_too() -> None:
    assert run_tool(["sh", "-c", "sleep 3600 & sleep 3600"], timeout_seconds=0.3).returncode is None


def test_what_a_wrapper_script_started_is_killed_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 3600 & echo $! > {note}.new; mv {note}.new {note}; wait"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(note.exists)
    tool = psutil.Process(int(note.read_text()))
    _abandon(process)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not is_alive(tool))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_tool_speaks_the_c_locale_and_cannot_ask_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    code = "import os, sys; print(os.environ['LC_ALL'], repr(sys.stdin.read()))"
    assert run_tool([sys.executable, "-c", code]).stdout == "C ''\n"


def test_no_shell_reads_the_arguments() -> None:
    assert run_tool(["echo", "$HOME", "*", "; false"]).stdout == "$HOME * ; false\n"


def test_bytes_that_are_no_text_do_not_raise() -> None:
    output = run_tool([sys.executable, "-c", "import os; os.write(1, b'\\xff C500')"])
    assert output.stdout == "\ufffd C500"


def test_a_tool_that_hangs_dies_with_its_caller() -> None:
    code = "from flagperf.kit import run_tool; print('ready', flush=True); run_tool(['sleep', '3600'], 3600)"
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert caller.stdout is not None and caller.stdout.readline() == b"ready\n"
    tool = _child_of(caller.pid)
    caller.kill()
    caller.wait()
    caller.stdout.close()
    tool.wait(timeout=600)


def _child_of(pid: int) -> psutil.Process:
    while True:
        for child in psutil.Process(pid).children():
            if child.name() == "sleep":
                return child
        time.sleep(0.01)
