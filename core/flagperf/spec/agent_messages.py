"""Messages between parent, agent, probe and worker: JSON lines over pipes, after an initial hello."""

from __future__ import annotations

from typing import Union

import msgspec

from flagperf.api import DataFile, Device, LaunchCommand
from flagperf.messages import Message
from flagperf.spec.job import Job
from flagperf.spec.values import Values


class DescribeRequest(msgspec.Struct, frozen=True):
    """Read by `agent describe` from stdin."""

    adapter_seconds: float = 30.0
    """Time limit for each adapter to detect its cards."""
    vendor: str | None = None
    """Ask this adapter only."""
    with_memory: bool = False
    """Also read the current memory use of every detected card."""
    requires: tuple[str, ...] = ()
    """Requirement strings of the case's worker."""


class CheckRequest(msgspec.Struct, frozen=True):
    """Read by `agent check` from stdin. The agent checks that this node has the data of the case."""

    check_files: str
    data_dir: str | None
    values: Values


class CheckAnswer(msgspec.Struct, frozen=True):
    files: tuple[DataFile, ...] = ()
    problem: str = ""
    """Why the case cannot use the values or --data-dir, in one message."""


class WorkOrder(msgspec.Struct, frozen=True):
    """Read by `agent run` from stdin, and by every worker from a file. `directory` is where they write their parts of
    the bundle."""

    job: Job
    node_index: int
    directory: str


class ProbeRequest(msgspec.Struct, frozen=True):
    """Read by `agent probe` from stdin. A second line has the launcher's pid. The probe ends when stdin is closed."""

    vendor: str
    node_index: int
    devices: tuple[Device, ...]
    interval_seconds: float
    path: str
    plugins: tuple[str, ...] | None = None
    """The only plugins to load, beside our own."""


class WireMessage(msgspec.Struct, frozen=True, tag_field="type"):
    """A line that `agent run` prints."""


class WorkersLaunchedMessage(WireMessage, frozen=True, tag="workers_launched"):
    t_ns: int
    command: LaunchCommand
    env_script: str = ""
    """The vendor's script that was sourced for the command."""


class EvaluationProgress(msgspec.Struct, frozen=True):
    rows: int
    planned_rows: int
    rows_per_second: float

    @property
    def seconds_left(self) -> float:
        return (self.planned_rows - self.rows) / self.rows_per_second


class Progress(WireMessage, frozen=True, tag="progress"):
    """Progress of this node's first rank, throughput of all its ranks, and memory use of its cards."""

    step: int
    planned_steps: int | None
    samples_per_second: float | None
    loss: float | None
    used_bytes: int | None
    seconds_left: float | None
    phase: str
    evaluation: EvaluationProgress | None = None
    """The evaluation in progress, if its progress is known."""


class Failure(msgspec.Struct, frozen=True):
    status: str
    """`failed`, `out_of_memory` or `unsupported`."""
    reason: Message
    died: bool = False
    """The rank died without recording a reason. Errors of other ranks are consequences, so this is the cause."""


class WorkersEndedMessage(WireMessage, frozen=True, tag="workers_ended"):
    t_ns: int
    returncode: int
    failure: Failure | None
    probe_failure: Message | None = None
    """Why the samples are incomplete, where that could not be written among them."""


AgentMessage = Union[WorkersLaunchedMessage, Progress, WorkersEndedMessage]  # noqa: UP007
