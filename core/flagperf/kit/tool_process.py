"""Run a vendor's tool: what `Machine.run_tool` does unless a test passes its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from flagperf.api.machine import CommandOutput
from flagperf.kit.process_tree import die_with_parent, kill_tree

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
            preexec_fn=_die_with_caller,
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


def _die_with_caller() -> None:
    """A tool that hangs is stopped by whoever called it, and by the kernel where the caller itself was killed."""
    die_with_parent(signal.SIGKILL)


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
