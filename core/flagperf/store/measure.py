"""Measures a run from the raw files of its bundle, reading each of them once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.api import LaunchCommand
from flagperf.errors import BadInput
from flagperf.events import EventFile, RunStarted
from flagperf.messages import Message, message
from flagperf.metrics import MeasuredRow, Metric, Observed, Record, compute_metrics
from flagperf.spec import Job, Manifest
from flagperf.store.bundle import environment_fingerprint, read_record, unreadable_files
from flagperf.store.commands import launched_commands
from flagperf.store.paths import ENVIRONMENT_FILE


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
        record = read_record(bundle)
        _check_others(bundle, record)
        return _measured(Observed(job, manifest, record))
    except BadInput as error:
        nothing = _measured(Observed(job, manifest, Record(EventFile(()), (), ())))
        return msgspec.structs.replace(nothing, damage=message("ending.record_unreadable", why=str(error)))


def _check_others(bundle: Path, record: Record) -> None:
    """What nothing is measured from, and the bundle cannot be read without."""
    for problem in unreadable_files(bundle):
        raise BadInput(problem)
    found = environment_fingerprint(bundle)
    for event in record.parent.events[:1]:
        if isinstance(event, RunStarted) and event.environment not in ("", found):
            raise BadInput(f"{ENVIRONMENT_FILE} was changed")


def _measured(run: Observed) -> Measured:
    return Measured(compute_metrics(run), run.rows, launched_commands(run.record.parent))
