"""Measures a run from the raw files of its bundle, reading each of them once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.api import LaunchCommand
from flagperf.errors import BadInput
from flagperf.events import EventFile
from flagperf.messages import Message, message
from flagperf.metrics import MeasuredRow, Metric, Observed, Record, compute_metrics
from flagperf.spec import Job, Manifest
from flagperf.store.bundle import read_record
from flagperf.store.commands import launched_commands


class Measured(msgspec.Struct, frozen=True):
    """What run.json gets when a run has ended."""

    metrics: tuple[Metric, ...]
    rows: tuple[MeasuredRow, ...]
    commands: tuple[LaunchCommand, ...]
    damage: Message | None = None
    """Why a file cannot be read: it was damaged during the run. Nothing is then measured, and the run has failed."""


def measure(bundle: Path, job: Job, manifest: Manifest) -> Measured:
    """All that the parent computes when the agents have ended. Never raises for a file that is damaged."""
    try:
        return _measured(Observed(job, manifest, read_record(bundle)))
    except BadInput as error:
        nothing = _measured(Observed(job, manifest, Record(EventFile(()), (), ())))
        return msgspec.structs.replace(nothing, damage=message("ending.record_unreadable", why=str(error)))


def _measured(run: Observed) -> Measured:
    return Measured(compute_metrics(run), run.rows, launched_commands(run.record.parent))
