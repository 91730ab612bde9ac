"""The site of one machine: every node is this one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from flagperf.api import AgentProcess, Cluster, Node
from flagperf.kit import module_command


class LocalCluster(Cluster):
    name = "local"
    nodes_share_host = True

    def nodes(self, num_nodes: int) -> list[Node]:
        return [Node(index, "127.0.0.1") for index in range(num_nodes)]

    def start_agent(self, node: Node, arguments: Sequence[str]) -> AgentProcess:
        return LocalAgent(arguments)

    def collect(self, node: Node, directory: str) -> None:
        """Agents here write into the bundle itself."""


class LocalAgent(AgentProcess):
    def __init__(self, arguments: Sequence[str]) -> None:
        # A session of its own: Ctrl-C reaches the parent alone, which then closes stdin.
        self._process = subprocess.Popen(
            [*module_command(sys.executable, "flagperf.agent"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self.stdin, self.stdout, self.stderr = self._process.stdin, self._process.stdout, self._process.stderr

    def wait(self, timeout_seconds: float | None = None) -> int | None:
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """With its whole session. Processes that left the session are the agent's to stop."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
