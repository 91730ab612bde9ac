"""Runs that break a rule, made of the structs of a good one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report_builders import MANIFEST, changed, job, metrics, recorded

from flagperf.api import Peak
from flagperf.bundle.run_record import RecordedRun
from flagperf.metrics.entry import Metric
from flagperf.metrics.rows import MeasuredRow
from flagperf.plausibility.doubts import marked
from flagperf.spec.job import Job
from flagperf.spec.manifest import Manifest, RowFigure

A100 = {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12, "memory_bandwidth": 1555e9, "tdp": 400.0}


def peaks(**values: float) -> tuple[Peak, ...]:
    return tuple(Peak("card", row, value, "datasheet", "high") for row, value in values.items())


def run_with(*added: Metric, plan: Job | None = None, **values: float | None) -> RecordedRun:
    """A good run with other figures."""
    found = metrics(**values)
    return recorded(figures={**found, **{each.name: each for each in added}}, plan=plan)


def planned(**fields: Any) -> Job:
    return job(**fields)


def figure(name: str, unit: str = "TFLOPS", amount: str = "flops", **where: str) -> RowFigure:
    return RowFigure(name, {"en": name}, "gemm", amount, unit, where)  # type: ignore[arg-type]


def figure_run(
    figures: Sequence[tuple[RowFigure, Metric]],
    rows: tuple[MeasuredRow, ...] = (),
    plan: Job | None = None,
    **added: Metric,
) -> RecordedRun:
    """A run of a case that measures rows."""
    manifest: Manifest = changed(MANIFEST, figures=tuple(each for each, _ in figures))
    found = {**{each.name: value for each, value in figures}, **added}
    made = recorded(manifest=manifest, figures=found, plan=plan or job(devices=1, manifest=manifest))
    return changed(made, run=changed(made.run, rows=rows))


def doubts(*runs: RecordedRun) -> list[str]:
    """`rule: text` of the first."""
    return [f"{doubt.rule}: {doubt.message}" for doubt in marked(runs)[0].doubts]


def rules_broken(*runs: RecordedRun) -> set[str]:
    return {doubt.rule for doubt in marked(runs)[0].doubts}


def marks(run: RecordedRun, name: str) -> tuple[str, ...]:
    found = marked([run])[0].run.metric(name)
    assert found is not None
    return found.marks
