"""What a short command prints on each node, outside of containers and without an agent."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from flagperf.errors import FlagPerfError, NodeFailed
from flagperf.fleet.channel import node_name
from flagperf.fleet.fleet import Fleet
from flagperf.units import exit_status


def outputs(fleet: Fleet, command: Sequence[str], timeout_seconds: float) -> dict[int, str | NodeFailed]:
    found: dict[int, str | NodeFailed] = {}
    at_once = max(1, fleet.allocation.max_starts)
    for first in range(0, len(fleet.nodes), at_once):
        indexes = range(first, min(first + at_once, len(fleet.nodes)))
        started = {index: _start(fleet, index, command) for index in indexes}
        deadline = time.monotonic() + timeout_seconds
        for index, process in started.items():
            if isinstance(process, NodeFailed):
                found[index] = process
            else:
                found[index] = _output(fleet, index, process, max(0.1, deadline - time.monotonic()))
    return found


def _start(fleet: Fleet, index: int, command: Sequence[str]) -> subprocess.Popen[str] | NodeFailed:
    try:
        return subprocess.Popen(
            fleet.allocation.agent_command(fleet.nodes[index], list(command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, FlagPerfError) as error:
        return NodeFailed(f"{node_name(index, fleet.nodes[index])}: {error}")


def _output(fleet: Fleet, index: int, process: subprocess.Popen[str], seconds: float) -> str | NodeFailed:
    name = node_name(index, fleet.nodes[index])
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return NodeFailed(f"{name} did not answer within {seconds:.0f} s")
    if process.returncode:
        said = stderr.strip().splitlines()[-1:] or [exit_status(process.returncode)]
        return NodeFailed(f"{name}: {said[0]}")
    return stdout
