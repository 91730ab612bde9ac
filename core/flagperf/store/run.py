"""Run: the content of run.json. A report needs only this and environment.json."""

from __future__ import annotations

from typing import Literal

import msgspec

from flagperf.api import LaunchCommand
from flagperf.messages import Message, message
from flagperf.metrics import MeasuredRow, Metric
from flagperf.spec import Job, Manifest, NodeFacts, RunSpec
from flagperf.store.alive import Parent
from flagperf.store.labels import Labels

STORE_SCHEMA = 1
"""Incremented when run.json or environment.json changes in a way that an older reader would misread."""

Status = Literal["succeeded", "failed", "out_of_memory", "timed_out", "unsupported", "target_missed", "interrupted"]

EXIT_CODES: dict[Status, int] = {
    "succeeded": 0,
    "failed": 3,
    "out_of_memory": 4,
    "timed_out": 5,
    "unsupported": 6,
    "target_missed": 7,
    "interrupted": 130,
}

WITH_RESULTS: tuple[Status, ...] = ("succeeded", "target_missed")
"""Endings of a run that has measured everything."""

Unfinished = Literal["running", "killed", "unknown"]
"""What a run without an ending is called; `unknown`: its command is, or was, on a machine that cannot be seen."""

_UNFINISHED: dict[str, Unfinished] = {"alive": "running", "gone": "killed", "unknown": "unknown"}


class Ending(msgspec.Struct, frozen=True):
    status: Status
    reason: str = ""
    """The reason in English."""
    message: Message | None = None
    """The reason as data."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]


class RecordedOperators(msgspec.Struct, frozen=True):
    """What came of --record-operators."""

    steps: int = 0
    """How many were recorded."""
    num_different: int = 0
    """Different calls of the first rank."""
    num_calls: int = 0
    """Calls of the first rank, in all these steps."""
    num_parts: int = 0
    """In how many ways the ranks differ."""
    problem: Message | None = None
    """Why nothing was recorded, or less."""


class RunGroup(msgspec.Struct, frozen=True):
    """The runs of one command: `run --repeat`."""

    id: str
    index: int
    """In the order of running, from 1."""
    of: int
    """How many were asked for."""
    arm: str = ""
    """A or B, if two settings took turns: A B, B A, A B, ..."""

    @property
    def pair(self) -> int:
        """The number of its pair, from 1, if two settings took turns."""
        return (self.index + 1) // 2


class Run(msgspec.Struct, frozen=True):
    schema: int
    id: str
    created: str
    """UTC, ISO 8601."""
    flagperf_version: str
    spec: RunSpec
    job: Job
    manifest: Manifest
    ending: Ending | None = None
    """None while the run is in progress, and after its parent was killed, until somebody ends it (`runs end`)."""
    metric_versions: dict[str, int] = {}
    """Metric -> version of its formula, recorded when the run began."""
    metrics: tuple[Metric, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    """Rows that the case measured besides steps."""
    simulated: bool = False
    commands: tuple[LaunchCommand, ...] = ()
    """One per node: the command that its agent used to start the workers, with its environment variables. Added at the
    end of a run."""
    recorded: RecordedOperators | None = None
    """None without --record-operators. Added at the end of a run."""
    group: RunGroup | None = None
    """None for a run on its own."""
    redacted: bool = False
    """It is a copy that `runs redact` made; redaction.json says what was replaced."""

    @property
    def has_results(self) -> bool:
        """Whether it finished and measured everything. A run that missed its target did."""
        return self.ending is not None and self.ending.status in WITH_RESULTS

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)


def unfinished(parent: Parent) -> tuple[Unfinished, str]:
    """What a run without an ending is called, and where its command runs or ran."""
    return _UNFINISHED[parent.state], parent.host


def gated(ending: Ending, run: Run) -> Ending:
    """A finished run that missed or did not measure a gating target has not succeeded."""
    target, verdict = run.manifest.target, run.metric("target")
    if ending.status != "succeeded" or target is None or not target.gates or verdict is None or verdict.value == 1:
        return ending
    if verdict.value is None:
        why = verdict.message or verdict.detail
        return ended("target_missed", message("ending.target_not_measured", metric=target.metric, why=why))
    got, wanted = verdict.inputs["got"], verdict.inputs["target"]
    return ended("target_missed", message("ending.target_missed", metric=target.metric, got=got, target=wanted))


def ended(status: Status, why: Message) -> Ending:
    return Ending(status, str(why), why)


class Doubt(msgspec.Struct, frozen=True):
    """What a rule of flagperf.plausibility found in a run. It is never stored."""

    rule: str
    """Its id, which is also the mark on the metrics."""
    message: Message
    """The numbers seen."""
    metrics: tuple[str, ...] = ()
    """Those that are marked."""


class RecordedRun(msgspec.Struct, frozen=True):
    """A run as read from its bundle."""

    run: Run
    nodes: tuple[NodeFacts, ...]
    path: str
    unfinished: Unfinished | None = None
    """What it was when it was read, if it has no ending."""
    host: str = ""
    """Where the command of such a run runs or ran."""
    labels: Labels = Labels()
    doubts: tuple[Doubt, ...] = ()
    """Empty until plausibility.doubts.marked has looked at it."""
