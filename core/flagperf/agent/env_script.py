"""What workers inherit: the agent's environment, or what a vendor's script makes of it."""

from __future__ import annotations

import os
import subprocess

from flagperf.api import Launcher, Machine

SCRIPT_SECONDS = 60.0
_SOURCE_AND_PRINT = '. "$1" >/dev/null && env -0'
"""Without `set -u`: vendors' scripts read variables that are not set."""


def worker_environment(launcher: Launcher, machine: Machine) -> dict[str, str]:
    script = launcher.env_script(machine)
    if script is None:
        return dict(os.environ)
    printed = subprocess.run(
        ["bash", "-c", _SOURCE_AND_PRINT, "bash", script], capture_output=True, check=True, timeout=SCRIPT_SECONDS,
        stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip
    return dict(entry.split("=", 1) for entry in printed.decode(errors="replace").split("\0") if "=" in entry)
