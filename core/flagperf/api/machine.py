"""The machine as agent-side code sees it: file system root, environment, command runner. Tests pass their own."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flagperf.processes import die_with_parent, kill_tree


class CommandOutput(msgspec.Struct, frozen=True):
    """The outcome of a tool. `returncode` is None where it could not be started or did not end in time: see
    `problem`."""

    returncode: int | None
    """None where it could not be started or did not end in time."""
    stdout: str
    """All of it, decoded."""
    stderr: str
    """All of it, decoded."""
    problem: str = ""
    """Why there is no returncode."""

    @property
    def ok(self) -> bool:
        return self.returncode == 0


UNKILLABLE_SECONDS = 1.0


def run_tool(argv: Sequence[str], timeout_seconds: float = 10.0) -> CommandOutput:
    """Run a tool without a shell, in the C locale, bounded in time. Never raises for what the tool does."""
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            # A tool that hangs is stopped by whoever called it, and by the kernel if the caller itself was killed.
            preexec_fn=functools.partial(die_with_parent, signal.SIGKILL),
        )
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
    """Kill the process tree: killing a wrapper script alone would orphan the tool. The tool stays in its parent's
    process group, which is killed as a whole when an adapter or a probe is stopped."""
    if process.returncode is None:  # else its number may be another's by now
        kill_tree(process.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):  # in uninterruptible sleep it ends when the driver lets it
        process.wait(UNKILLABLE_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Machine(msgspec.Struct, frozen=True):
    """The machine that an adapter may look at. Never open a path of `/` by yourself: tests put other machines here."""

    root: Path = Path("/")
    """`/`, or the folder of a simulated machine."""
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: dict(os.environ))
    """The environment variables of the process that asks."""
    run_tool: Callable[..., CommandOutput] = run_tool
    """`run_tool(argv, timeout_seconds=...)`: without a shell, bounded in time; never raises for what the tool does."""

    def read(self, path: str) -> str | None:
        """Return the text of an absolute path below the root, stripped, or None if it cannot be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(errors="replace").strip("\x00\n ")
        except OSError:
            return None

    def glob(self, pattern: str) -> list[Path]:
        """Return the paths that match an absolute pattern, sorted, below the root."""
        return sorted(self.root.glob(pattern.lstrip("/")))
