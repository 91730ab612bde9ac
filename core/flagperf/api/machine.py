"""The machine as agent-side code sees it: file system root, environment, command runner. Tests pass their own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from flagperf.api.processes import descendants

if TYPE_CHECKING:
    import subprocess

UNKILLABLE_SECONDS = 1.0


class CommandOutput(msgspec.Struct, frozen=True):
    """What a tool did. `returncode` is None where it could not be started or did not end in time: see `problem`."""

    returncode: int | None
    stdout: str
    stderr: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        return self.returncode == 0


def run_tool(argv: Sequence[str], timeout_seconds: float = 10.0) -> CommandOutput:
    """Run a tool without a shell, in the C locale, bounded in time. Never raises for what the tool does."""
    import subprocess  # not at the top: every command imports this module, few run a tool

    try:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        return CommandOutput(None, "", "", f"{argv[0]} could not be started: {error.strerror}")
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        _abandon(process)
        return CommandOutput(None, "", "", f"{argv[0]} did not end within {timeout_seconds:g} s")
    except BaseException:
        _abandon(process)
        raise
    return CommandOutput(process.returncode, stdout, stderr)


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill it with all that it started: a wrapper script leaves the tool itself behind. It keeps the group of its
    parent, which whoever stops an adapter or a probe kills as a whole."""
    import subprocess

    for pid in [*descendants(process.pid), process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # one that waits within the driver ends when the driver does
        process.wait(UNKILLABLE_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Machine(msgspec.Struct, frozen=True):
    root: Path = Path("/")
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    run_tool: Callable[..., CommandOutput] = run_tool

    def read(self, path: str) -> str | None:
        """The text of an absolute path below the root, stripped, or None where it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip("\x00\n ")
        except OSError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Paths that match an absolute pattern, sorted, below the root."""
        return sorted(self.root.glob(pattern.lstrip("/")))
