"""The record of a run: typed events and the files that contain them."""

from __future__ import annotations

from typing import Annotated, Literal, Union

import msgspec

from flagperf.api.launcher import LaunchCommand
from flagperf.api.memory_probe import ProcessReading, Reading
from flagperf.messages import Message

EVENT_SCHEMA = 1
"""Incremented when a struct in this file changes in a way that an older reader would misread."""


def snake_case(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=snake_case, omit_defaults=True, gc=False):
    """The garbage collector need not look at events, of which there are many: they hold plain values."""

    t_ns: int
    """When the event was recorded; for a span, when it ended."""


class Clock(msgspec.Struct, frozen=True):
    """The machine whose clock the timestamps of a file use, and the wall-clock time when the file was opened."""

    host: str
    boot_id: str
    pid: int
    wall: str
    """UTC, ISO 8601."""


# --- parent ---------------------------------------------------------------------------------------------------------


class RunStarted(Event, frozen=True):
    schema: int
    clock: Clock
    planned: dict[str, str] = {}
    """Field of run.json -> its fingerprint when the run began. Planned fields never change afterwards."""
    environment: str = ""
    """Fingerprint of environment.json."""
    locked: bool = False
    """The parent holds a lock on this file while it lives. False where the file system has no locks."""
    pid_namespace: str = ""
    """In which the process number of `clock` counts."""


class WorkersLaunched(Event, frozen=True):
    """The launcher command of a node was started."""

    node_index: int
    node_t_ns: int
    """The same moment on the node's own clock."""
    command: LaunchCommand
    """The command that the agent ran."""
    env_script: str = ""
    """The vendor's script that the agent sourced first, or empty."""


class WorkersEnded(Event, frozen=True):
    node_index: int
    node_t_ns: int
    returncode: int
    probe_failure: Message | None = None
    """Why the node's samples are incomplete, where that could not be written among them."""


class RunEnded(Event, frozen=True):
    status: str
    reason: str = ""
    """The reason in English."""
    message: Message | None = None
    """The reason as data."""
    by: Clock | None = None
    """Who wrote this and what follows, where the run's own command was gone. Their times are of this clock."""


class BundleSealed(Event, frozen=True):
    """The last event of a bundle: after it, only MANIFEST is written."""

    files: dict[str, str]
    """Name -> sha256 of every other file."""
    own: str = ""
    """sha256 of this file up to here, without this field."""


# --- worker ---------------------------------------------------------------------------------------------------------


class WorkerStarted(Event, frozen=True):
    schema: int
    clock: Clock
    rank: int
    local_rank: int
    node_index: int
    world_size: int
    device_id: str
    mapping: str
    timing: Literal["device_events", "synchronize"]
    framework: dict[str, str] = {}
    precision: str = ""
    """The precision that the worker set."""
    batch_size: int | None = None
    """The batch size in the job that the worker received. None for a case without batches."""
    job: str = ""
    """Fingerprint of the job that the worker received."""


class ModelDescribed(Event, frozen=True):
    """Facts about the model that MFU needs. `matmul_parameters` counts weights used in matrix products: no input
    embedding, no norms, a tied head once. `sequence` is the length that attention spans, including padding."""

    parameters: int
    matmul_parameters: int
    layers: int
    heads: int
    head_size: int
    sequence: int
    causal: bool
    nominal_parameters: int | None = None
    """The rounded N of published pages (70e9 for llama2_70b)."""
    lora_parameters: int | None = None
    """Parameters of the adapters if the base is frozen; `parameters` then counts those of the base."""


class DataDescribed(Event, frozen=True):
    """A dataset that the worker used. `sha256` is over the rows in file order."""

    name: str
    rows: int
    sha256: str


class SpanBegan(Event, frozen=True):
    """Start of the measured span of the case (`training`, `inference`). The device is synchronised first."""

    name: str
    planned_steps: int | None = None
    """How many of them will be measured. For progress only."""


class WarmupEnded(Event, frozen=True):
    """Recorded after the last warm-up step, with the device synchronised. The window of the published throughputs
    starts here."""

    step: int


class StepFinished(Event, frozen=True):
    """One optimizer step of one rank. `t_ns` is the host's clock at its end; `compute_ns` is device time by timing
    events, or host time between two synchronisations, as WorkerStarted.timing says."""

    step: int
    began_ns: int
    compute_ns: int
    wait_ns: int
    """Time spent waiting for the batch and copying it to the device, after the previous step's bookkeeping."""
    work: dict[str, int]
    """Amounts of work, with keys from WORK. Zero amounts are omitted."""
    loss: float | None = None
    """Mean over this rank's real samples of the step."""
    diverged: bool = False
    """The loss was not a finite number; `loss` is then None."""

    @property
    def samples(self) -> int:
        return self.work.get("samples", 0)

    @property
    def tokens(self) -> int:
        return self.work.get("tokens", 0)

    @property
    def padded_tokens(self) -> int:
        return self.work.get("padded_tokens", 0)


WORK = ("samples", "tokens", "padded_tokens", "flops", "bytes", "bus_bytes")
"""Amounts of work. `tokens` counts real tokens and `padded_tokens` padding positions; the model computes the sum of
both. `flops` and `bytes` are the minimum that an operator needs. `bus_bytes` of a transfer between devices are those
that one device has to move over its links in one direction."""


class SpanEnded(Event, frozen=True):
    """A named span of the case or the context: the measured span (device synchronised), `evaluation`, `logging` (time
    spent writing events), or any other."""

    name: str
    began_ns: int
    step: int
    """Number of steps finished before the end of the span."""


RowStatus = Literal["ok", "invalid", "unsupported", "out_of_memory", "error"]
"""`invalid`: what was computed is wrong, or not what the label says."""


class RowTiming(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The way in which the samples of a row were taken. Times are of the host's clock unless they say otherwise."""

    clock: Literal["device_events", "synchronize"]
    """What a value is: device time by timing events, or host time between two synchronisations."""
    calls: int
    """Calls in one sample; a value is the time of one."""
    began_ns: int
    """Start of the first sample. The device was synchronised before."""
    ended_ns: int
    """End of the last one, with the device synchronised."""
    starts_ns: tuple[int, ...]
    """Of each sample, since began_ns."""
    block: int = 1
    """Samples in a block: what alternatives take turns in."""
    issue_ns: tuple[int, ...] = ()
    """Time that the host took to issue each sample. Empty where it waits for every call."""
    first_ns: int = 0
    """The very first call, with what is compiled, loaded or tuned in it."""
    warmup_calls: int = 0
    settled: bool = True
    """The last two blocks of the warm-up had medians within 1 %."""


class RowMeasured(Event, frozen=True):
    """One row of a table of measurements: an operator, a message size, a precision, with every repeat."""

    name: str
    """What was measured. Rows with the same name have the same labels and unit."""
    labels: dict[str, str]
    unit: str
    values: tuple[float, ...]
    """Value of each repeat, in order. Empty if it could not be measured."""
    work: dict[str, int] = {}
    """Work of one repeat, with keys from WORK."""
    problem: str = ""
    """Why it could not be measured, or does not count."""
    status: RowStatus = "ok"
    timing: RowTiming | None = None
    """None for a row that is not a time."""
    limits: dict[str, str] = {}
    """Amount of work -> the row of the card's peaks that bounds it."""
    turns: int = 0
    """Rows of the same number are alternatives that took turns; the others are compared with the first. 0: it was timed
    alone."""
    facts: dict[str, str] = {}
    """What the check of the output found: its error, the tolerance, how the precision was proved."""


class EvaluationAdvanced(Event, frozen=True):
    """Progress of the current evaluation. Used only for display."""

    began_ns: int
    rows: int
    """Rows of all ranks, assuming that they are as far as this one."""
    planned_rows: int


class Reported(Event, frozen=True):
    """Values that the case reports, such as `acc` and `evaluated`. The last report of a name counts."""

    step: int
    values: dict[str, float]


class PartsReported(Event, frozen=True):
    """A breakdown of a reported value, such as `acc` by `subject`. The last report of a name and breakdown counts."""

    step: int
    name: str
    by: str
    values: dict[str, float]


class WorkerEnded(Event, frozen=True):
    status: Literal["succeeded", "failed", "out_of_memory", "unsupported"]
    reason: str = ""
    allocator_peak_allocated_bytes: int | None = None
    allocator_peak_reserved_bytes: int | None = None
    num_before: int | None = None
    """Events that its process has written before this one: a file with more or fewer was damaged during the run."""


# --- probe ----------------------------------------------------------------------------------------------------------


class ProbeStarted(Event, frozen=True):
    schema: int
    clock: Clock
    node_index: int
    vendor: str
    probe: str
    interval_seconds: float
    not_used: dict[str, str] = {}
    """Probes that were tried before this one, and why they were unavailable."""
    board_figures: tuple[str, ...] = ()
    """Figures that all chips of a board share. Sums count them once for each board."""


class CpuUse(msgspec.Struct, frozen=True, gc=False):
    """Cumulative CPU seconds on the cores that the run may use: of all processes, and of the run's processes. Only
    differences are meaningful."""

    cores: Annotated[int, msgspec.Meta(ge=1)]
    all_seconds: float
    own_seconds: float


class Sampled(Event, frozen=True):
    readings: tuple[Reading, ...]
    baseline: bool = False
    """True for the sample taken before the workers start."""
    cpu: CpuUse | None = None
    """None in a baseline, or if the kernel does not report it."""


class SampleMissed(Event, frozen=True):
    reason: str


class ProcessesListed(Event, frozen=True):
    """Processes on the cards, if the probe can list them: before the workers start and after they end."""

    processes: tuple[ProcessReading, ...]
    problem: str = ""
    """Why they could not be listed."""


class ProbeEnded(Event, frozen=True):
    cpu_seconds: float
    wall_seconds: float
    num_before: int | None = None
    """As in WorkerEnded."""


class ProbeFailed(Event, frozen=True):
    """Written by the agent: the probe did not become ready, died, or was killed. `t_ns` is when the agent noticed."""

    reason: str
    message: Message | None = None


AnyEvent = Union[  # noqa: UP007  (msgspec evaluates it at run time, also on 3.10)
    RunStarted,
    WorkersLaunched,
    WorkersEnded,
    RunEnded,
    BundleSealed,
    WorkerStarted,
    ModelDescribed,
    DataDescribed,
    SpanBegan,
    WarmupEnded,
    StepFinished,
    SpanEnded,
    EvaluationAdvanced,
    RowMeasured,
    Reported,
    PartsReported,
    WorkerEnded,
    ProbeStarted,
    Sampled,
    SampleMissed,
    ProcessesListed,
    ProbeEnded,
    ProbeFailed,
]
