"""Does a bundle hold? Files against MANIFEST, and every stored number against the one made from the raw files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.errors import BadInput
from flagperf.metrics import Metric, compute_metrics
from flagperf.store import Run, broken_files, read_bundle, read_record


class Verification(msgspec.Struct, frozen=True):
    problems: tuple[str, ...]
    num_metrics: int
    num_files: int


def verify_bundle(path: Path) -> Verification:
    recorded = read_bundle(path)
    run = recorded.run
    problems = broken_files(path)
    if run.ending is not None:
        try:
            problems += _differences(run, compute_metrics(run.job, run.manifest, read_record(path)))
        except BadInput as error:
            problems.append(str(error))
    return Verification(tuple(problems), len(run.metrics), sum(file.is_file() for file in path.rglob("*")))


def _differences(run: Run, recomputed: tuple[Metric, ...]) -> list[str]:
    again = {metric.name: metric for metric in recomputed}
    stored = {metric.name: metric for metric in run.metrics}
    return [
        f"{name}: stored {_value(stored.get(name))}, recomputed {_value(again.get(name))}"
        for name in sorted(set(again) | set(stored))
        if again.get(name) != stored.get(name)
    ]


def _value(metric: Metric | None) -> str:
    if metric is None:
        return "nothing"
    return f"n/a ({metric.reason})" if metric.value is None else str(metric.value)
