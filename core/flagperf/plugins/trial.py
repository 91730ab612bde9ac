"""Try each plugin in a process of its own, so that the commands that explain plugins always answer.

Run as a program, it loads the plugins and calls every hook.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from flagperf.kit import module_command
from flagperf.plugins.installed import Plugins, load_plugins
from flagperf.plugins.loading import (
    OWN_DISTRIBUTION,
    WITHOUT,
    PluginStatus,
    installed_entry_points,
    is_left_out,
    load_entry_points,
    plugins_without_entry_point,
    status_of,
)
from flagperf.units import exit_status

TRY_SECONDS = 30.0
"""For a plugin and all its hooks, in a Python of its own on a busy machine."""

CAME_BACK = 86
"""Exit code of the process that tried a plugin: none that a plugin ends it with by itself."""


def load_tried_plugins() -> Plugins:
    """Load all installed plugins, after trying each one of others in a process of its own. A plugin that loops or ends
    the process is listed with that reason, and agents that this process starts later leave it out."""
    found = [status_of(each) for each in installed_entry_points()]
    foreign = [status for status in found if status.distribution != OWN_DISTRIBUTION]
    deadline = time.monotonic() + TRY_SECONDS
    trials: dict[PluginStatus, subprocess.Popen[bytes]] = {}
    for status in foreign:
        if not is_left_out(status):
            others = ",".join(each.key for each in foreign if each != status)
            trials[status] = subprocess.Popen(
                module_command(sys.executable, "flagperf.plugins.trial"),
                env={**os.environ, WITHOUT: others},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that the tools that it starts are stopped with it
            )
    failed = {
        status.key: f"to load it and to call its hooks {what}; {WITHOUT}={status.name} starts without it"
        for status, process in trials.items()
        if (what := end_of_trial(process, deadline))
    }
    loaded = load_entry_points(failed=failed)
    if failed:
        os.environ[WITHOUT] = ",".join(filter(None, [os.environ.get(WITHOUT), *failed]))
    return Plugins(loaded, plugins_without_entry_point)


def end_of_trial(process: subprocess.Popen[bytes], deadline: float) -> str:
    """Return what went wrong, or "" where the plugin came back. Stop it at the deadline."""
    try:
        code = process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"takes more than {TRY_SECONDS:g} s"
    return "" if code == CAME_BACK else f"ends the process ({exit_status(code)})"


if __name__ == "__main__":
    load_plugins().statuses()
    os._exit(CAME_BACK)  # what a plugin does when Python ends is not tried
