from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flagperf.api import CommandOutput, Machine
from flagperf.api.machine import _abandon
from flagperf.kit import run_tool
from live_processes import is_alive, wait_until


def test_files_are_read_and_matched_below_the_root(tmp_path: Path) -> None:
    for name in ("acme1", "acme0", "other"):
        (tmp_path / "dev" / name).mkdir(parents=True)
    (tmp_path / "model").write_bytes(b"Acme \xff A1\x00\n")
    machine = Machine(root=tmp_path)
    assert [machine.read(path) for path in ("/model", "/not/there", "/")] == ["Acme \ufffd A1", None, None]
    assert machine.glob("/dev/acme*") == [tmp_path / "dev" / "acme0", tmp_path / "dev" / "acme1"]
    assert machine.glob("/dev/none*") == []


def test_the_environment_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "0")
    machine = Machine()
    monkeypatch.setenv("ACME_VISIBLE_DEVICES", "1")
    assert machine.environ["ACME_VISIBLE_DEVICES"] == "0"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (python("import sys; print('out'); print('err', file=sys.stderr)"), CommandOutput(0, "out\n", "err\n")),
        (python("import sys; sys.exit('no device')"), CommandOutput(1, "", "no device\n")),
        (python("import os; os.kill(os.getpid(), 9)"), CommandOutput(-9, "", "")),
        (python("import os; os.write(1, b'\\xff C500')"), CommandOutput(0, "\ufffd C500", "")),
        (python("import sys; print(repr(sys.stdin.read()))"), CommandOutput(0, "''\n", "")),
        (python("import os; print(os.environ['LC_ALL'])"), CommandOutput(0, "C\n", "")),
        (["echo", "$HOME", "*", "; false"], CommandOutput(0, "$HOME * ; false\n", "")),  # no shell reads it
        (
            ["no-such-smi", "--query"],
            CommandOutput(None, "", "", "no-such-smi could not be started: No such file or directory"),
        ),
    ],
)
def test_what_a_tool_did(argv: list[str], output: CommandOutput, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert Machine().run_tool(argv) == output
    assert output.ok == (output.returncode == 0)


@pytest.mark.parametrize("argv", [["sleep", "3600"], ["sh", "-c", "sleep 3600 & sleep 3600"]])
def test_a_tool_that_hangs_is_stopped_also_where_a_child_has_its_pipe(argv: list[str]) -> None:
    assert run_tool(argv, timeout_seconds=0.3) == CommandOutput(None, "", "", f"{argv[0]} did not end within 0.3 s")


def test_a_file_that_is_no_program_is_a_problem(tmp_path: Path) -> None:
    tool = tmp_path / "smi"
    tool.write_text("not for you")
    assert run_tool([str(tool)]).problem == f"{tool} could not be started: Permission denied"
    tool.chmod(0o755)
    assert run_tool([str(tool)]).problem == f"{tool} could not be started: Exec format error"


def test_what_a_wrapper_script_started_is_killed_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 3600 & echo $! > {note}.new; mv {note}.new {note}; wait"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(note.exists)
    tool = psutil.Process(int(note.read_text()))
    _abandon(process)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not is_alive(tool))


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
