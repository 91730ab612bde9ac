"""All lines between command, agent, probe and worker: JSON over pipes, after an initial hello."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Union

import msgspec

from flagperf.api import DataFile, Device, LaunchCommand, NodeShare
from flagperf.errors import NodeFailed
from flagperf.messages import Message, message
from flagperf.spec.job import Job, PlannedNode
from flagperf.spec.node_facts import NodeFacts
from flagperf.spec.values import Values


class DescribeRequest(msgspec.Struct, frozen=True):
    """Body of a request for the verb `describe`."""

    adapter_seconds: float = 30.0
    """Time limit for each adapter to detect its cards."""
    vendor: str | None = None
    """Ask this adapter only."""
    with_memory: bool = False
    """Also read the current memory use of every detected card."""
    requires: tuple[str, ...] = ()
    """Requirement strings of the case's worker."""


class CheckRequest(msgspec.Struct, frozen=True):
    """Body of a request for the verb `check`: the agent checks that its node has the data of the case."""

    check_files: str
    data_dir: str | None
    values: Values


class CheckAnswer(msgspec.Struct, frozen=True):
    files: tuple[DataFile, ...] = ()
    problem: str = ""
    """Why the case cannot use the values or --data-dir, in one message."""


class WorkOrder(msgspec.Struct, frozen=True):
    """One node's part of a job: the body of a request for the verb `run`, which every worker reads from a file."""

    job: Job
    """Of its nodes only this one: a job of a thousand nodes has megabytes of others."""
    node_index: int
    num_nodes: int
    first_rank: int
    world_size: int
    directory: str
    """Where this node's parts of the bundle are written. Empty: into a folder of its own, and sent from there."""
    interface: str = ""
    """The network interface to use. Empty: the one that reaches the first node."""

    @property
    def node(self) -> PlannedNode:
        return self.job.nodes[0]

    @property
    def ranks(self) -> range:
        return range(self.first_rank, self.first_rank + len(self.node.devices))

    def share(self, interface: str = "") -> NodeShare:
        """Return what the vendor's launcher gets."""
        return NodeShare(
            node_index=self.node_index,
            num_nodes=self.num_nodes,
            devices=self.node.devices,
            master_address=self.job.master_address,
            master_port=self.job.master_port,
            allowed_cores=self.node.allowed_cores,
            host_workers=self.job.host_workers,
            interface=interface,
        )


def work_orders(job: Job, directory: str = "", interface: str = "") -> Iterator[WorkOrder]:
    """Yield one order for each node."""
    first_rank, world_size = 0, job.world_size
    for node in job.nodes:
        part = msgspec.structs.replace(job, nodes=(node,))
        yield WorkOrder(part, node.index, len(job.nodes), first_rank, world_size, directory, interface)
        first_rank += len(node.devices)


class RendezvousRequest(msgspec.Struct, frozen=True):
    """Body of a request for the verb `rendezvous`, which the first node gets right before a run."""

    address: str = ""
    """By which the others reach it, where the cluster knows it."""
    interface: str = ""
    """Whose address it is to be."""


class RendezvousAnswer(msgspec.Struct, frozen=True):
    address: str
    port: int


class InspectRequest(msgspec.Struct, frozen=True):
    """Body of a request for the verb `inspect`.

    The agent prints its clock at once (nanoseconds since 1970, a line), then a NodeState.
    """

    describe: DescribeRequest
    data_dir: str | None = None
    first_address: str = ""
    """Of the first node, where it is known."""
    interface: str = ""
    """The network interface to use. Empty: the one that reaches the first node."""


class NodeState(msgspec.Struct, frozen=True):
    """Facts that decide if a node can be part of a run."""

    facts: NodeFacts
    python: str
    """The interpreter's path."""
    broken_adapters: tuple[str, ...] = ()
    interface: str = ""
    address: str = ""
    """Its own, by which it reaches the first node."""
    network_problem: str = ""
    """Why it cannot reach the first node, or has no free port."""
    data_problem: str = ""
    shm_bytes: int = 0
    """Of /dev/shm."""
    locked_bytes: int | None = None
    """How much memory a process may lock; None without a limit."""
    max_files: int | None = None
    """How many files a process may have open; None without a limit."""
    has_rdma: bool = False


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
    """A line that the verb `run` prints."""


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


class RankPace(msgspec.Struct, frozen=True):
    """Average duration of a rank's last steps."""

    rank: int
    step_seconds: float


class Progress(WireMessage, frozen=True, tag="progress", omit_defaults=True):
    """Progress of this node's first rank, throughput of all its ranks, and memory and power of its cards."""

    step: int
    planned_steps: int | None
    samples_per_second: float | None
    loss: float | None
    used_bytes: int | None
    """Of the card that uses most."""
    seconds_left: float | None
    phase: str
    evaluation: EvaluationProgress | None = None
    """The evaluation in progress, if its progress is known."""
    power_watts: float | None = None
    """Of all cards together, if the power of each was read."""
    median_step_seconds: float | None = None
    """Median over the ranks, like `slowest` over the last steps that all of them have finished."""
    slowest: RankPace | None = None


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


class FilePart(WireMessage, frozen=True, tag="file_part"):
    """Content that was added to a file of the bundle, on a node that is another machine."""

    path: str
    """In the bundle."""
    offset: int
    """Where it belongs. What the file has behind that is gone."""
    content: bytes = b""


class FilesComplete(WireMessage, frozen=True, tag="files_complete"):
    """Sent after the last part."""

    digests: dict[str, str]
    """sha256 of every file, by its path in the bundle."""


AgentMessage = Union[WorkersLaunchedMessage, Progress, WorkersEndedMessage, FilePart, FilesComplete]  # noqa: UP007

# What a command and `agent serve` say to each other: a hello each, then lines of JSON.
#
# The command asks one thing at a time (Request) and may end it early (Stop). The agent passes on what the process of
# that verb prints (Data, a line that its bytes follow) and says how it ended (Ended). Both send a Beat while the
# other waits, so that either side notices a connection that is cut without a word.


BEAT_SECONDS = 5.0
"""How often each side says that it is there."""

SILENT_SECONDS = 20.0
"""After so long without a word, the other side is gone."""

IDLE_SECONDS = 3600.0
"""The same for an agent that has nothing to do: the command may be busy."""


class ChannelLine(msgspec.Struct, frozen=True, tag_field="type"):
    """A line of either side."""


class Request(ChannelLine, frozen=True, tag="request"):
    verb: str
    body: msgspec.Raw


class Stop(ChannelLine, frozen=True, tag="stop"):
    """End the verb at work. Its Ended follows."""


class Beat(ChannelLine, frozen=True, tag="beat"):
    """Sent while the other side waits. A command's beat also means that more of them will come."""


class Data(ChannelLine, frozen=True, tag="data"):
    size: Annotated[int, msgspec.Meta(ge=0)]
    """Bytes that follow this line."""


class Ended(ChannelLine, frozen=True, tag="ended"):
    code: int
    """Exit code of the verb's process; negative for a signal."""
    error: str = ""
    """What it said on stderr, where it failed."""


class Leaving(ChannelLine, frozen=True, tag="leaving"):
    """Somebody else has told the agent to stop: a cancelled job, a stopped container."""

    signal: str


CommandLine = Union[Request, Stop, Beat]  # noqa: UP007

AgentLine = Union[Data, Ended, Beat, Leaving]  # noqa: UP007


def encode_line(line: ChannelLine) -> bytes:
    return msgspec.json.encode(line) + b"\n"


# The first line in each direction between a command and its agents: the flagperf version of the sender.
#
# {"flagperf": "0.1.0"}
#
# The format of this line never changes. So two versions that cannot read each other's messages still report the
# mismatch before anything else is decoded.


class VersionMismatch(NodeFailed):
    def __init__(self, said: Message) -> None:
        super().__init__(str(said))
        self.message = said


class Hello(msgspec.Struct, frozen=True):
    flagperf: str


def hello_line(version: str) -> bytes:
    return msgspec.json.encode(Hello(version)) + b"\n"


def check_hello(line: bytes, *, other: str, own: str, own_version: str) -> None:
    """Raise VersionMismatch unless `line` is a hello of the same version. `other` and `own` name both sides."""
    try:
        other_version = msgspec.json.decode(line, type=Hello).flagperf
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = message("hello.none", other=other, line=repr(line[:80]), own=own, own_version=own_version)
        raise VersionMismatch(said) from None
    if other_version != own_version:
        versions = {"own_version": own_version, "other_version": other_version}
        raise VersionMismatch(message("hello.differs", other=other, own=own, **versions))
