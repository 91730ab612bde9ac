"""What workers inherit: the agent's environment, or what a vendor's script makes of it."""

from __future__ import annotations

import os
import subprocess

from flagperf.api import Launcher, Machine

SCRIPT_SECONDS = 60.0
_SOURCE_AND_PRINT = 'env -0; printf "\\0"; . "$1" >/dev/null; status=$?; env -0; exit $status'
"""The variables before and after. Without `set -u`: vendors' scripts read variables that are not set."""


def worker_environment(launcher: Launcher, machine: Machine) -> dict[str, str]:
    """A script whose last command is false (`[ -d x ] && ...`) returns an error and has still worked: an error counts
    only where the script set nothing."""
    script = launcher.env_script(machine)
    if script is None:
        return dict(os.environ)
    done = subprocess.run(
        ["bash", "-c", _SOURCE_AND_PRINT, "bash", script],
        capture_output=True,
        check=False,
        timeout=SCRIPT_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    before, _, after = done.stdout.partition(b"\0\0")
    made = _variables(after)
    if not made or (done.returncode and made == _variables(before)):
        raise subprocess.CalledProcessError(done.returncode, script, stderr=done.stderr)
    return made


def _variables(printed: bytes) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in os.fsdecode(printed).split("\0") if "=" in entry)
