"""Cluster: how nodes are had and reached. It only carries agents; it knows neither cards nor cases."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec

from flagperf.errors import BadInput


class Node(msgspec.Struct, frozen=True):
    """A machine of an allocation."""

    name: str
    """The cluster's word for it. Messages and reports call it so."""
    address: str = ""
    """The IP address by which the other nodes reach it. Empty: the node is asked for its own."""
    python: str = ""
    """Its Python that has flagperf. Empty: the same path as here."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a cluster that has none."""


class JobState(msgspec.Struct, frozen=True):
    """State of a job that was put into a cluster's queue."""

    phase: Literal["queued", "running", "ended", "unknown"]
    """`ended`: its command is gone too, as far as the cluster knows; where that left no word, its run is then ended by
    whoever asked. `unknown`: the cluster knows no such job, or does not any more."""
    reason: str = ""
    """The cluster's own words for it, a sentence: what it waits for, or how it ended."""


class Allocation(abc.ABC):
    """The nodes that a command has, until it gives them back. All its questions and runs use them."""

    nodes: tuple[Node, ...]
    """In the order of the job's nodes."""

    nodes_share_host: ClassVar[bool] = False
    """True: all nodes are this machine, so that only a vendor without cards of its own can have several, and agents
    write into the bundle itself."""

    max_starts: int = 64
    """How many agents may be starting at once."""

    @abc.abstractmethod
    def agent_command(self, node: Node, command: Sequence[str]) -> list[str]:
        """Return what is started here, without a shell, so that `command` runs on the node. stdin, stdout and stderr
        are carried byte by byte; the end of stdin reaches the node. SIGTERM ends it. What follows the last newline of
        stdout may be held back until the next one, as srun does. Raises BadInput for words that cannot be carried
        exactly."""

    def explain(self, node: Node) -> str:
        """Return why the agent of a node may have ended, as far as the cluster knows: a sentence, or empty. Core waits
        for the answer, which should come within seconds."""
        return ""

    def release(self) -> None:
        """Give the nodes back. Called once, also after a failure."""


class Cluster(abc.ABC):
    """A way to get and reach the nodes of a site."""

    name: ClassVar[str]
    """What users type after --cluster."""

    options: ClassVar[type[msgspec.Struct]] = NoOptions
    """The options that users give in `[clusters.NAME]` of flagperf.toml and by --cluster-option, with their types,
    defaults and docstrings. Unknown names are refused where the struct forbids them (`forbid_unknown_fields=True`)."""

    container_options: ClassVar[tuple[str, ...]] = ()
    """Container engines that are options of this cluster's own command, such as `pyxis`. Any engine that starts
    containers by a command works without being named here."""

    @abc.abstractmethod
    def allocate(self, num_nodes: int, options: Any) -> Allocation:
        """Return the nodes of a command; `options` is of the type above. Raises BadInput if there are fewer. May wait
        in a queue."""

    def num_nodes(self, options: Any) -> int:
        """Return how many nodes the options name, or are there already; asked if a command is to have all of them. A
        cluster that does not override this has one."""
        return 1

    def submit(self, command: Sequence[str], num_nodes: int, options: Any, log: str) -> str:
        """Put a command into the cluster's queue, to be started on the first of its nodes, where `allocate` then gives
        them. What it prints goes into the file `log`. Returns the job's id."""
        raise self._no_queue()

    def job_state(self, job: str) -> JobState:
        """Return the state of a job that `submit` returned. Raises BadInput for what cannot be an id."""
        raise self._no_queue()

    def cancel(self, job: str) -> None:
        """End a job that `submit` returned, queued or running. Raises BadInput if there is no such job."""
        raise self._no_queue()

    def _no_queue(self) -> BadInput:
        return BadInput(f"cluster {self.name} has no queue: its commands run while you wait")
