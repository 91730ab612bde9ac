"""Run: the content of run.json. A report needs only this and environment.json."""

from __future__ import annotations

from typing import Literal

import msgspec

from flagperf.api import LaunchCommand
from flagperf.messages import Message, message
from flagperf.metrics import MeasuredRow, Metric
from flagperf.spec import Job, Manifest, NodeFacts, RunSpec

STORE_SCHEMA = 2
"""Incremented when run.json or environment.json changes in a way that an older reader would misread. `schema1.py` reads
bundles of schema 1."""

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


class Ending(msgspec.Struct, frozen=True):
    status: Status
    reason: str = ""
    """The reason in English."""
    message: Message | None = None
    """The reason as data."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.status]


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
    """None while the run is in progress, and permanently if the parent was killed."""
    metric_versions: dict[str, int] = {}
    """Metric -> version of its formula, recorded when the run began."""
    metrics: tuple[Metric, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    """Rows that the case measured besides steps."""
    simulated: bool = False
    commands: tuple[LaunchCommand, ...] = ()
    """One per node: the command that its agent used to start the workers, with its environment variables. Added at the
    end of a run."""

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)


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


class RecordedRun(msgspec.Struct, frozen=True):
    """A run as read from its bundle."""

    run: Run
    nodes: tuple[NodeFacts, ...]
    path: str
