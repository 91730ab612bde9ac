"""The real command line beside the plugin of tests/faults/site, any call of which can misbehave. None imports torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from e2e_flagperf import Done, processes_of

from live_processes import is_alive

SITE = Path(__file__).parent / "site"
RUN = ("run", "sleeper", "--vendor", "faulty")


def first_always(*cases: Any) -> list[Any]:
    """Return cases of one kind for parametrize: `make test` runs the first, `make test-all` all of them."""
    rest = [each if isinstance(each, tuple) else (each,) for each in cases[1:]]
    return [cases[0], *(pytest.param(*each, marks=pytest.mark.full) for each in rest)]


def environment(fault: str = "", **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLAGPERF_")}
    return {**inherited, "PYTHONPATH": str(SITE), "FLAGPERF_FAULT": fault, **variables}


def start(cwd: Path, *arguments: str, fault: str = "", variables: dict[str, str] | None = None, **options: Any) -> Any:
    """The command, with a folder of its own for temporary files."""
    (cwd / "tmp").mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "flagperf", *arguments],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(fault, TMPDIR=str(cwd / "tmp"), **(variables or {})),
        **options,
    )


def flagperf(cwd: Path, *arguments: str, **options: Any) -> Done:
    return ended(start(cwd, *arguments, **options))


def ended(process: Any) -> Done:
    stdout, stderr = process.communicate(timeout=300)
    assert "Traceback" not in stderr, stderr
    return Done(process.returncode, stdout, stderr)


def assert_nothing_left(cwd: Path, bundle: Path, at_once: bool = False) -> None:
    """Neither a process of the run nor a temporary folder. At once: the command has waited for them; its agents end a
    moment after their streams."""
    if at_once:
        assert not processes_of(bundle) and not list((cwd / "tmp").iterdir())
    deadline = time.monotonic() + 600
    while left := [*processes_of(bundle), *agents_of(cwd), *(cwd / "tmp").iterdir()]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.1)


def agents_of(cwd: Path) -> list[psutil.Process]:
    """Agents and probes, which have the folder for temporary files of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(cwd / "tmp")) and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return [process for process in found if is_alive(process)]
