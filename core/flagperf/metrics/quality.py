"""What was learned: losses of steps, the values that the case reports, and whether its target was reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from flagperf.events import StepFinished
from flagperf.metrics.finding import Absent, Finding, Findings, Found, named
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.training import Training
from flagperf.spec import Job, Manifest, Quality, flatten


def losses(training: Training | Absent) -> Findings:
    if isinstance(training, Absent):
        return dict.fromkeys(("loss", "loss_first"), training)
    steps = training.steps
    if not steps:
        return dict.fromkeys(("loss", "loss_first"), Absent("not_measured", "no step was finished"))
    return {"loss": global_loss(steps[-1]), "loss_first": global_loss(steps[0])}


def global_loss(steps: Sequence[StepFinished]) -> Finding:
    """Of one step on all ranks, index is the rank: the mean over all real samples. A rank without samples has none."""
    counted = [(rank, step) for rank, step in enumerate(steps) if step.samples]
    silent = [rank for rank, step in counted if step.loss is None or not math.isfinite(step.loss)]
    if silent or not counted:
        who = named("rank", silent) if silent else "all ranks"
        if any(step.diverged for step in steps):
            return Absent("not_measured", f"training diverged: the loss of step {steps[0].step} is not a finite number")
        return Absent("not_measured", f"step {steps[0].step} has no finite loss on {who}")
    total = sum((step.loss or 0.0) * step.samples for _, step in counted)
    samples = sum(step.samples for _, step in counted)
    return Found(total / samples, {"step": steps[0].step, "samples": samples})


def quality(wanted: Quality, ranks: Sequence[RankRecord], failure: Absent | None) -> Finding:
    """The last value that rank 0 reported."""
    if failure is not None:
        return failure
    reports = [report for record in ranks if record.rank == 0 for report in record.reports]
    report = next((report for report in reversed(reports) if wanted.name in report.values), None)
    if report is None:
        return Absent("not_measured", f"the case did not report {wanted.name}")
    value = report.values[wanted.name]
    low = -math.inf if wanted.minimum is None else wanted.minimum
    high = math.inf if wanted.maximum is None else wanted.maximum
    if not (math.isfinite(value) and low <= value <= high):
        return Absent("invalid_telemetry", f"{wanted.name} is {value}, not a number from {low:g} to {high:g}")
    evaluated = report.values.get("evaluated")
    rows = {} if evaluated is None else {"evaluated": int(evaluated)}
    return Found(value, {"definition": wanted.definition, "step": report.step, **rows, **_parts(wanted.name, ranks)})


def _parts(name: str, ranks: Sequence[RankRecord]) -> dict[str, dict[str, dict[str, float]]]:
    """What the value is made of, by each division that rank 0 reported last."""
    reported = [parts for record in ranks if record.rank == 0 for parts in record.parts if parts.name == name]
    return {"parts": {parts.by: parts.values for parts in reported}} if reported else {}


def target(job: Job, manifest: Manifest, findings: Mapping[str, Finding]) -> Finding:
    """1 where the value is at the target or on its good side, else 0. Losses fall, all other values rise."""
    if manifest.target is None:
        return Absent("not_applicable", "the case declares no target")
    name, key = manifest.target.metric, manifest.target.key
    goal = dict(flatten(job.config.values)).get(key)
    if isinstance(goal, bool) or not isinstance(goal, int | float):
        return Absent("not_measured", f"the configuration has no number at {key}")
    finding = findings.get(name) or Absent("not_measured", f"there is no metric of that name in case {manifest.name}")
    if isinstance(finding, Absent):
        return Absent(finding.reason, f"{name}: {finding.detail}", {"metric": name, "target": goal})
    reached = finding.value <= goal if _falls(manifest, name) else finding.value >= goal
    return Found(int(reached), {"metric": name, "target": goal, "got": finding.value})


def _falls(manifest: Manifest, name: str) -> bool:
    formats = {entry.name: entry.format for entry in manifest.qualities}
    return formats.get(name, name) in ("loss", "loss_first")
