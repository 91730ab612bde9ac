"""The nova adapter, installed by pip, and processes on a machine with its cards."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import Done
from plugin_harness import install_dummies

HERE = Path(__file__).parent
MIB = 1 << 20


class NovaMachine:
    """Two cards. `flagperf` is the real command, which knows nothing of tests: no FLAGPERF_SIMULATE."""

    def __init__(self, site: Path, folder: Path, card_bytes: int = 1 << 30) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FLAGPERF_", "NOVA_"))}
        helpers = [str(HERE), str(HERE.parent / "cases")]
        self.environ = {**kept, "PYTHONPATH": os.pathsep.join([str(site), *helpers]), "OMP_NUM_THREADS": "1"}
        code = "import sys; from pathlib import Path; from flagperf_nova import make_machine; "
        code += f"print(make_machine(Path(sys.argv[1]), {card_bytes}, {card_bytes})['NOVA_MACHINE'])"
        made = subprocess.run(
            [sys.executable, "-c", code, str(folder / "machine")],
            env=self.environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.environ["NOVA_MACHINE"] = made.stdout.strip()

    def flagperf(self, *arguments: str, **variables: str) -> Done:
        return finished(self.start_flagperf(*arguments, **variables))

    def start_flagperf(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return self.start([sys.executable, "-m", "flagperf", *arguments], **variables)

    def start(self, command: Sequence[str], **variables: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env={**self.environ, **variables}, **pipes)


def finished(process: subprocess.Popen[str]) -> Done:
    stdout, stderr = process.communicate(timeout=600)
    return Done(process.returncode, stdout, stderr)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A file or folder that `make` writes, once for all workers of a session: the others wait for it."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    target, unfinished = shared / name, shared / f"making-{name}"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            make(unfinished)
            unfinished.rename(target)
    return target


def install_nova(folder: Path) -> None:
    install_dummies(folder, HERE / "nova")
