"""LossCurve: the loss of every step of a run, with the conditions that affect it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from flagperf.metrics.finding import Absent, absent
from flagperf.metrics.observed import Observed
from flagperf.metrics.quality import global_loss
from flagperf.metrics.ranks import RankRecord
from flagperf.metrics.spans import Loop
from flagperf.spec import Job

MODEL_FIELDS = ("parameters", "layers", "heads", "sequence")


class CurvePoint(msgspec.Struct, frozen=True):
    step: int
    loss: float | None
    """Mean over all real samples of the step, on all ranks. None if there is no finite loss."""
    samples: int | None = None
    remark: str = ""
    """Why there is no loss."""


class CurveData(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A dataset or file used for training or evaluation."""

    name: str
    sha256: str


class LossCurve(msgspec.Struct, frozen=True):
    """Only case and points are required: a curve from another program may omit the rest, which is then unknown."""

    case: str
    points: tuple[CurvePoint, ...]
    """At least one; steps increase by one."""
    case_version: int | None = None
    run: str = ""
    vendor: str = ""
    """`<vendor> (simulated)` for a simulated run."""
    device: str = ""
    shape: str = ""
    profile: str = ""
    model: dict[str, int] = {}
    data: tuple[CurveData, ...] = ()
    values: dict[str, Any] = {}
    """Dotted key -> value in the configuration of the run."""

    @property
    def first_step(self) -> int:
        return self.points[0].step

    @property
    def last_step(self) -> int:
        return self.points[-1].step


def loss_curve(run: Observed) -> LossCurve | Absent:
    job = run.job
    if "losses" not in run.kind.metrics:
        return absent("not_applicable", "kind.not_measured", kind=run.kind.name)
    if isinstance(run.loop, Absent):
        return run.loop
    loop = run.loop
    if not loop.num_steps:
        return absent("not_measured", "quality.no_step")
    points = tuple(curve_point(loop, index) for index in range(loop.num_steps))
    has_diverged = any(rank.diverged for rank in loop.ranks)
    if not has_diverged and all(point.loss is None for point in points):
        return absent("not_measured", "quality.no_loss_at_any_step")
    return LossCurve(
        case=job.case,
        points=points,
        case_version=job.case_version,
        run=job.run_id,
        vendor=f"{job.vendor} (simulated)" if job.simulated else job.vendor,
        device=job.device_model.short_name,
        shape=job.shape,
        profile=job.profile,
        model=_model(run.ranks),
        data=_data(job, run.ranks),
        values=run.values,
    )


def curve_point(loop: Loop, index: int) -> CurvePoint:
    """Of the step at this place in the loop, from 0."""
    number, samples = loop.first_step + index, sum(rank.samples[index] for rank in loop.ranks)
    finding = global_loss(loop, index)
    if isinstance(finding, Absent):
        return CurvePoint(number, None, samples, finding.detail)
    return CurvePoint(number, float(finding.value), samples)


def _model(ranks: Sequence[RankRecord]) -> dict[str, int]:
    described = next((model for rank in ranks for model in rank.models), None)
    return {name: getattr(described, name) for name in MODEL_FIELDS} if described else {}


def _data(job: Job, ranks: Sequence[RankRecord]) -> tuple[CurveData, ...]:
    """The data that the workers reported, else the files that were checked before the run."""
    described = {CurveData(data.name, data.sha256) for rank in ranks for data in rank.data}
    return tuple(sorted(described or {CurveData(file.path, file.sha256) for file in job.data_files}))
