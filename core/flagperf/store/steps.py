"""The steps of a recorded run, read again from its raw files."""

from __future__ import annotations

from pathlib import Path

from flagperf.errors import BadInput
from flagperf.metrics import Observed
from flagperf.metrics.finding import Absent
from flagperf.store.bundle import read_record
from flagperf.store.run import RecordedRun


def step_times(recorded: RecordedRun) -> list[float]:
    """Compute time of every kept step for a unit of its work, in nanoseconds. Empty for a run that has no steps, and if
    its files cannot be read: `runs verify` says why."""
    run = recorded.run
    observed = Observed(run.job, run.manifest, read_record(Path(recorded.path)))
    try:
        window = observed.window if observed.kind.has_steps else None
    except BadInput:
        return []
    if window is None or isinstance(window, Absent):
        return []
    work = window.per_step(run.manifest.counts)
    return [time / count for time, count in zip(window.step_computes_ns, work, strict=True) if count > 0]
