"""Run: what run.json holds. Together with environment.json it is all that a report needs."""

from __future__ import annotations

from typing import Literal

import msgspec

from flagperf.api import LaunchCommand
from flagperf.messages import Message, message
from flagperf.metrics import MeasuredRow, Metric
from flagperf.spec import Job, Manifest, NodeFacts, RunSpec

STORE_SCHEMA = 2
"""Moves when run.json or environment.json change in a way that an older reader would misread. `schema1.py` reads the
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
    """In English."""
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
    """None while it runs, and for ever where the parent was killed."""
    metric_versions: dict[str, int] = {}
    """What the run is measured by, decided when it began: metric -> version of its formula."""
    metrics: tuple[Metric, ...] = ()
    rows: tuple[MeasuredRow, ...] = ()
    """Tables of measurements, of cases that make them."""
    simulated: bool = False
    commands: tuple[LaunchCommand, ...] = ()
    """One per node: how its agent started the workers, and the variables they were given. Added at the end of a run."""

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)


def gated(ending: Ending, run: Run) -> Ending:
    """A run that worked but missed a target that gates, or did not measure it, has not succeeded."""
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
