"""Cluster: how nodes are reached. It only carries agents; it knows neither cards nor cases."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import IO, ClassVar

import msgspec


class Node(msgspec.Struct, frozen=True):
    """A machine of a run."""

    index: int
    """From 0."""
    address: str
    """What other nodes call it."""


class AgentProcess(abc.ABC):
    """A running `python -m flagperf.agent`. Closing its stdin stops it and all that it started."""

    stdin: IO[bytes]
    """Requests go here; closing it stops the agent."""
    stdout: IO[bytes]
    """Answers, a JSON line each."""
    stderr: IO[bytes]
    """What to show if it fails."""

    @abc.abstractmethod
    def wait(self, timeout_seconds: float | None = None) -> int | None:
        """The exit code, or None when it is still running after the time."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Kill it, where closing stdin did not stop it."""


class Cluster(abc.ABC):
    """How the nodes of a site are reached."""

    name: ClassVar[str]
    """What users type after --cluster."""

    nodes_share_host: ClassVar[bool] = False
    """True: all nodes are this machine, so that only a vendor without cards of its own can have several."""

    @abc.abstractmethod
    def nodes(self, num_nodes: int) -> list[Node]:
        """The nodes of a run. Raises BadInput where there are fewer."""

    @abc.abstractmethod
    def start_agent(self, node: Node, arguments: Sequence[str]) -> AgentProcess: ...

    @abc.abstractmethod
    def collect(self, node: Node, directory: str) -> None:
        """Bring what the node's agent wrote into `directory` here. Does nothing where it was written there."""
