"""The command line beside plugins that are installed in a folder."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DUMMIES = Path(__file__).parent.parent / "dummies"


@dataclass(frozen=True)
class Ended:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


class FlagPerf:
    """flagperf("plan", "toy", state="present"). The same question is asked once: commands that only look do not change
    what the next one sees."""

    def __init__(self, folders: Sequence[Path], directory: Path) -> None:
        self._path = os.pathsep.join(map(str, folders))
        self._directory = directory
        self._run = functools.cache(self._start)

    def __call__(
        self, *arguments: str, state: str = "absent", adapter_seconds: float | None = None, **variables: str
    ) -> Ended:
        return self._run(arguments, state, adapter_seconds, tuple(sorted(variables.items())))

    def _start(
        self,
        arguments: tuple[str, ...],
        state: str,
        adapter_seconds: float | None,
        variables: tuple[tuple[str, str], ...],
    ) -> Ended:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLAGPERF_", "ACME_"))}
        environ = {**inherited, "PYTHONPATH": self._path, "ACME_STATE": state, **dict(variables)}
        code = "from flagperf.cli import main; main()"
        if adapter_seconds is not None:
            code = f"from flagperf.plan import nodes; nodes.ADAPTER_SECONDS = {adapter_seconds}; {code}"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environ,
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


def install_dummies(folder: Path, *packages: Path) -> Path:
    """In one call: most of the time goes into starting pip and its build processes."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--isolated",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "--no-compile",
            "--target",
            str(folder),
            *map(str, packages),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"pip could not install the dummies (is hatchling there?):\n{done.stderr}"
    return folder
