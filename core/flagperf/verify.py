"""Does a bundle hold? Files against MANIFEST, and every stored number against the one made from the raw files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from flagperf.metrics import compute_metrics
from flagperf.store import broken_files, read_bundle, read_record


class Verification(msgspec.Struct, frozen=True):
    problems: tuple[str, ...]
    num_metrics: int
    num_files: int


def verify_bundle(path: Path) -> Verification:
    recorded = read_bundle(path)
    run = recorded.run
    problems = broken_files(path)
    if run.ending is not None:
        again = {metric.name: metric for metric in compute_metrics(run.job, run.manifest, read_record(path))}
        stored = {metric.name: metric for metric in run.metrics}
        for name in sorted(set(again) | set(stored)):
            if again.get(name) != stored.get(name):
                problems.append(f"{name}: stored {_value(stored.get(name))}, recomputed {_value(again.get(name))}")
    return Verification(tuple(problems), len(run.metrics), sum(file.is_file() for file in path.rglob("*")))


def _value(metric: object) -> str:
    if metric is None:
        return "nothing"
    value = getattr(metric, "value", None)
    return f"{value}" if value is not None else f"n/a ({getattr(metric, 'reason', '')})"
