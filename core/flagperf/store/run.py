"""Run: what run.json holds. Together with environment.json it is all that a report needs."""

from __future__ import annotations

from typing import Literal

import msgspec

from flagperf.api import LaunchCommand
from flagperf.metrics import Metric
from flagperf.spec import Job, Manifest, NodeFacts, RunSpec

STORE_SCHEMA = 1
"""Moves when run.json or environment.json change in a way that an older reader would misread."""

Status = Literal["succeeded", "failed", "out_of_memory", "timed_out", "unsupported", "target_missed", "interrupted"]

EXIT_CODES: dict[Status, int] = {
    "succeeded": 0, "failed": 3, "out_of_memory": 4, "timed_out": 5, "unsupported": 6, "target_missed": 7,
    "interrupted": 130,
}  # fmt: skip


class Ending(msgspec.Struct, frozen=True):
    status: Status
    reason: str = ""

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
    metrics: tuple[Metric, ...] = ()
    simulated: bool = False
    commands: tuple[LaunchCommand, ...] = ()
    """One per node: how the workers were started, and the variables they were given."""

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)


class RecordedRun(msgspec.Struct, frozen=True):
    """A run as read from its bundle."""

    run: Run
    nodes: tuple[NodeFacts, ...]
    path: str
