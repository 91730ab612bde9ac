"""What the processes of a run write down. One struct per line of a .jsonl file, told apart by `type`.

All times are time.monotonic_ns() of the machine named in the file's first line; times of two machines are never
subtracted from each other. Three kinds of file, each opened by its own first line:

    events/parent.jsonl       RunStarted, then every node's WorkersLaunched and WorkersEnded as they arrived, RunEnded
    events/rank-00000.jsonl   WorkerStarted, then what the case did, WorkerEnded
    samples/node-000.jsonl    ProbeStarted, then Sampled and SampleMissed, ProbeEnded; ProbeFailed in place of an end
"""

from __future__ import annotations

from typing import Literal, Union

import msgspec

from flagperf.api.launcher import LaunchCommand
from flagperf.api.memory import ProcessReading, Reading
from flagperf.messages import Message

EVENT_SCHEMA = 2
"""Moves when a struct of this file changes in a way that an older reader would misread. `schema1.py` reads the files of
schema 1."""


def snake_case(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=snake_case, omit_defaults=True):
    t_ns: int
    """When it was noted, or for a span, when it ended."""


class Clock(msgspec.Struct, frozen=True):
    """Whose clock a file's times are, and what the wall said when it was opened."""

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
    """Field of run.json -> its fingerprint when the run began. What was planned is not changed afterwards."""
    environment: str = ""
    """Fingerprint of environment.json."""


class WorkersLaunched(Event, frozen=True):
    """A node's launcher command has been started."""

    node_index: int
    node_t_ns: int
    """The same moment on the node's own clock."""
    command: LaunchCommand | None = None
    """What the agent ran. None in files that were written before agents said so."""
    env_script: str = ""
    """The vendor's script that the agent sourced for it; empty where there was none."""


class WorkersEnded(Event, frozen=True):
    node_index: int
    node_t_ns: int
    returncode: int


class RunEnded(Event, frozen=True):
    status: str
    reason: str = ""
    """In English."""
    message: Message | None = None
    """The reason as data."""


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
    """The one that it set."""
    batch_size: int | None = None
    """training.batch_size as it was given; None for a case that has none."""
    job: str = ""
    """Fingerprint of the whole job as it was given."""


class ModelDescribed(Event, frozen=True):
    """What MFU needs to know of the model. `matmul_parameters` are weights used in matrix products: no input embedding,
    no norms, a tied head counts once. `sequence` is the length that attention really spans, padding included."""

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
    """Of the adapters, where the base is frozen; `parameters` are then those of the base."""


class DataDescribed(Event, frozen=True):
    """A data set as the worker used it. `sha256` is over the rows in their file order."""

    name: str
    rows: int
    sha256: str


class SpanBegan(Event, frozen=True):
    """The measured span of the case (`training`, `inference`). Device synchronised."""

    name: str
    planned_steps: int | None = None
    """For progress only."""


class WarmupEnded(Event, frozen=True):
    """After the last warm-up step, device synchronised: the window of the published throughputs opens."""

    step: int


class StepFinished(Event, frozen=True):
    """One optimizer step of one rank. `t_ns` is the host's clock at its end; `compute_ns` is device time by timing
    events, or host time between two synchronisations, as WorkerStarted.timing says."""

    step: int
    began_ns: int
    compute_ns: int
    wait_ns: int
    """From the end of the previous step's bookkeeping: waiting for the batch and copying it to the device."""
    work: dict[str, int]
    """What the step did, as amounts of WORK. Those that a step does not have are left out."""
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


WORK = ("samples", "tokens", "padded_tokens", "flops", "bytes")
"""Amounts of work. `tokens` are real ones; `padded_tokens` are positions that hold padding, so that the model computed
`tokens + padded_tokens` positions; `flops` and `bytes` are what an operator needs at least."""


class SpanEnded(Event, frozen=True):
    """A span that the case or the context named: the measured one (device synchronised), `evaluation`, `logging` (the
    context's own writing), or any other."""

    name: str
    began_ns: int
    step: int
    """Steps finished before its end."""


class RowMeasured(Event, frozen=True):
    """One row of a table of measurements: an operator, a message size, a precision, with every repeat."""

    name: str
    """What was measured: rows of one name have the same labels and unit."""
    labels: dict[str, str]
    unit: str
    values: tuple[float, ...]
    """Each repeat, in the order in which they were made. Empty where it could not be measured."""
    work: dict[str, int] = {}
    """Of one repeat, as amounts of WORK."""
    problem: str = ""
    """Why it could not be measured."""


class EvaluationAdvanced(Event, frozen=True):
    """For progress only: how far the evaluation under way is."""

    began_ns: int
    rows: int
    """Of all ranks, where those are as far as this one."""
    planned_rows: int


class Reported(Event, frozen=True):
    """Values that the case gives: `acc`, `evaluated` and the like. The last one of a name counts."""

    step: int
    values: dict[str, float]


class PartsReported(Event, frozen=True):
    """What a value that the case gives is made of: `acc` by `subject`. The last one of a name and a division counts."""

    step: int
    name: str
    by: str
    values: dict[str, float]


class WorkerEnded(Event, frozen=True):
    status: Literal["succeeded", "failed", "out_of_memory", "unsupported"]
    reason: str = ""
    allocator_peak_allocated_bytes: int | None = None
    allocator_peak_reserved_bytes: int | None = None


# --- probe ----------------------------------------------------------------------------------------------------------


class ProbeStarted(Event, frozen=True):
    schema: int
    clock: Clock
    node_index: int
    vendor: str
    probe: str
    interval_seconds: float
    not_used: dict[str, str] = {}
    """Probes before this one, with the reason why they were not available."""


class CpuUse(msgspec.Struct, frozen=True):
    """CPU seconds since some beginning, on the cores that the run may use: of all processes, and of the run's own."""

    cores: int
    all_seconds: float
    own_seconds: float


class Sampled(Event, frozen=True):
    readings: tuple[Reading, ...]
    baseline: bool = False
    """True for the sample taken before the workers start."""
    cpu: CpuUse | None = None
    """None in a baseline, and where the kernel does not say."""


class SampleMissed(Event, frozen=True):
    reason: str


class ProcessesListed(Event, frozen=True):
    """Who was on the cards, where the probe can say: before the workers start, and when they have ended."""

    processes: tuple[ProcessReading, ...]
    problem: str = ""
    """Why they could not be listed."""


class ProbeEnded(Event, frozen=True):
    cpu_seconds: float
    wall_seconds: float


class ProbeFailed(Event, frozen=True):
    """Written by the agent: the probe did not get ready, died, or had to be killed. `t_ns` is when that was noticed."""

    reason: str
    message: Message | None = None


AnyEvent = Union[  # noqa: UP007  (msgspec reads it at run time, also on 3.10)
    RunStarted, WorkersLaunched, WorkersEnded, RunEnded,
    WorkerStarted, ModelDescribed, DataDescribed, SpanBegan, WarmupEnded, StepFinished, SpanEnded, EvaluationAdvanced,
    RowMeasured, Reported, PartsReported, WorkerEnded,
    ProbeStarted, Sampled, SampleMissed, ProcessesListed, ProbeEnded, ProbeFailed,
]  # fmt: skip
