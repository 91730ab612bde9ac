"""Runs the real command line in a process of its own, with the trouble case installed beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

SITE = Path(__file__).parent / "site"


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def environment() -> dict[str, str]:
    # Tests share the cores: threads that spin while they wait would take them from each other.
    inherited = {**os.environ, "PYTHONPATH": str(SITE), "OMP_WAIT_POLICY": "passive"}
    inherited.pop("FLAGPERF_RUNS_DIR", None)
    return inherited


def start(cwd: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment()}
    return subprocess.Popen([sys.executable, "-m", "flagperf", *arguments], cwd=cwd, text=True, **{**usual, **options})


def flagperf(cwd: Path, *arguments: str) -> Done:
    process = start(cwd, *arguments)
    stdout, stderr = process.communicate(timeout=900)
    return Done(process.returncode, stdout, stderr)


def bundle_of(cwd: Path) -> Path:
    """The only bundle under ./runs."""
    (bundle,) = (cwd / "runs").iterdir()
    return bundle


def read_run(bundle: Path) -> Any:
    return json.loads((bundle / "run.json").read_text())


def said(run: Any) -> tuple[str, str]:
    """How it ended."""
    return run["ending"]["status"], run["ending"]["reason"]


def metric(run: Any, name: str) -> Any:
    return next(metric for metric in run["metrics"] if metric["name"] == name)


def processes_of(bundle: Path) -> list[psutil.Process]:
    """Whatever carries the run's marker or works in its name."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FLAGPERF_WORKERS_OF", "").startswith(bundle.name):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def agent_process(parent: subprocess.Popen[str], verb: str) -> psutil.Process:
    """The one process below `parent` that is the agent (`serve`), its watchdog (`watch`), or that of a verb."""
    children = psutil.Process(parent.pid).children(recursive=True)
    (found,) = [child for child in children if is_agent(child, verb)]
    return found


def is_agent(process: psutil.Process | None, verb: str) -> bool:
    """Forks of the agent have names of their own, which their own forks inherit; the agent itself and the probe are
    told by their command lines."""
    try:
        name, command = (process.name(), process.cmdline()) if process else ("", [])
        above = process.parent() if process else None
        name_above = above.name() if above else ""
    except psutil.Error:
        return False
    if name.startswith("flagperf-"):
        return name == f"flagperf-{verb}"[:15] and name != name_above  # the kernel keeps no more of it
    return command[-1:] == [verb] and "flagperf.agent" in " ".join(command)


def wait_until_gone(bundle: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while left := processes_of(bundle):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.2)


def wait_for_step(cwd: Path, process: subprocess.Popen[str], seconds: float = 300) -> Path:
    return wait_for_event(cwd, process, "step_finished", seconds=seconds)


def wait_for_event(cwd: Path, process: subprocess.Popen[str], kind: str, rank: int = 0, seconds: float = 300) -> Path:
    """Until the run has its bundle and this rank has written such an event. A run that ends before is shown at once."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        for events in (cwd / "runs").glob(f"*/events/rank-{rank:05}.jsonl"):
            if kind in events.read_text():
                return events.parent.parent
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"no {kind} was written, exit code {process.returncode}: {process.communicate()}")


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> Done:
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=300)
    return Done(process.returncode, stdout, stderr)
