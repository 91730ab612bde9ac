"""Processes: trees are killed as a whole, and ours import libraries whatever the current folder holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from flagperf import processes, version
from flagperf.kit import module_command
from flagperf.processes import kill_tree
from flagperf.spec.protocol import Request, encode_line, hello_line
from live_processes import is_alive, wait_until


def shell(script: str) -> subprocess.Popen[str]:
    """A shell that has started a command, with that command."""
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.stdout.close()
    return process


def test_a_wrapper_is_stopped_before_its_tool_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it goes on with its next command."""
    sent: list[tuple[int, int]] = []
    kill = os.kill
    monkeypatch.setattr(processes.os, "kill", lambda pid, number: (sent.append((pid, number)), kill(pid, number)))
    process = shell("sleep 3600 & echo ready; wait; sleep 3600")
    (tool,) = psutil.Process(process.pid).children()
    kill_tree(process.pid)
    assert process.wait(600) == -signal.SIGKILL
    pids = (process.pid, tool.pid)
    assert sent == [(pid, number) for number in (signal.SIGSTOP, signal.SIGKILL) for pid in pids]
    wait_until(lambda: not is_alive(tool))


def test_what_a_process_starts_while_it_is_looked_at_is_found_too() -> None:
    seconds = f"3600.{os.getpid()}"  # by which these are known
    process = shell(f"echo ready; while :; do sleep {seconds} & sleep 0; done")
    wait_until(lambda: len(psutil.Process(process.pid).children()) >= 3)
    kill_tree(process.pid)
    assert process.wait(600) == -signal.SIGKILL
    wait_until(lambda: not any(seconds in (each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])))


def test_a_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    kill_tree(process.pid)


LOOK_ALIKES = ("json", "torch", "accelerate", "transformers", "msgspec", "click", "runpy", "flagperf", "platform")

REQUEST = (hello_line(version()) + encode_line(Request("describe", msgspec.Raw(b"{}")))).decode()


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A current folder whose files leave a trace when they are imported."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in LOOK_ALIKES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    return folder


def imported_in(folder: Path) -> str:
    trace = folder.parent / "imported"
    return trace.read_text() if trace.exists() else ""


def start(command: tuple[str, ...], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environ}, input=REQUEST, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("safe_path", ["", "1"])
def test_a_module_is_started_without_the_current_folder(hostile_folder: Path, safe_path: str) -> None:
    command = (*module_command(sys.executable, "flagperf.agent"), "serve")
    with subprocess.Popen(
        command,
        cwd=hostile_folder,
        env={**os.environ, "PYTHONSAFEPATH": safe_path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        assert agent.stdin and agent.stdout
        agent.stdin.write(REQUEST)
        agent.stdin.flush()
        said = ""
        while '"type":"ended"' not in said:
            line = agent.stdout.readline()
            assert line, f"the agent has ended; it said: {said}"
            said += line
        agent.stdin.close()
    assert (agent.returncode, imported_in(hostile_folder)) == (0, "")
    assert '"vendors"' in said


def test_arguments_and_exit_codes_are_those_of_the_module(tmp_path: Path) -> None:
    done = start((*module_command(sys.executable, "flagperf.agent"), "no-such-verb"), tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_pythonpath_counts(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "of_the_user.py").write_text("print('found', __name__)")
    done = start(module_command(sys.executable, "of_the_user"), tmp_path, PYTHONPATH=str(tmp_path / "mine"))
    assert done.stdout == "found __main__\n"


@pytest.mark.parametrize("command", ["cases list", "devices", "plan distilbert --vendor cpu"])
def test_no_command_imports_from_the_current_folder(hostile_folder: Path, command: str) -> None:
    script = (str(Path(sys.executable).with_name("flagperf")), *command.split())
    done = start(script, hostile_folder)
    assert (done.returncode, imported_in(hostile_folder)) == (0, ""), done.stderr


def test_python_m_flagperf_imports_nothing_else_from_the_current_folder(hostile_folder: Path) -> None:
    for name in ("flagperf", "runpy"):  # Python itself looks for these before any code of ours
        (hostile_folder / f"{name}.py").unlink()
    done = start((sys.executable, "-m", "flagperf", "cases", "list"), hostile_folder)
    assert (done.returncode, imported_in(hostile_folder)) == (0, ""), done.stderr
