"""LossCurve, the rules of its alignment with another, and `loss_aligned`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from flagperf.messages import Message, message
from flagperf.metrics.entry import Absent, Finding, Found, Metric, MetricEntry, absent
from flagperf.metrics.observed import Observed
from flagperf.metrics.quality import global_loss
from flagperf.metrics.rank_record import Steps

# LossCurve: the loss of every step of a run, with the conditions that affect it.


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
    if isinstance(run.steps, Absent):
        return run.steps
    if not run.steps[0].num_steps:
        return absent("not_measured", "quality.no_step")
    points = tuple(curve_point(run.steps, index) for index in range(run.steps[0].num_steps))
    has_diverged = any(rank.diverged for rank in run.steps)
    if not has_diverged and all(point.loss is None for point in points):
        return absent("not_measured", "quality.no_loss_at_any_step")
    models = [model for rank in run.ranks for model in rank.models]
    data = {CurveData(data.name, data.sha256) for rank in run.ranks for data in rank.data}
    return LossCurve(
        case=job.case,
        points=points,
        case_version=job.case_version,
        run=job.run_id,
        vendor=f"{job.vendor} (simulated)" if job.simulated else job.vendor,
        device=job.device_model.short_name,
        shape=job.shape,
        profile=job.profile,
        model={name: getattr(models[0], name) for name in MODEL_FIELDS} if models else {},
        data=tuple(sorted(data or {CurveData(file.path, file.sha256) for file in job.data_files})),
        values=run.values,
    )


def curve_point(ranks: Sequence[Steps], index: int) -> CurvePoint:
    """Return the point of the step at this place in the loop, from 0."""
    number, samples = ranks[0].first + index, sum(rank.samples[index] for rank in ranks)
    finding = global_loss(ranks, index)
    if isinstance(finding, Absent):
        return CurvePoint(number, None, samples, finding.detail)
    return CurvePoint(number, float(finding.value), samples)


# Alignment: whether one loss curve follows another, by a named rule.


SLACK = 1e-12
"""Tolerance for floating-point rounding: a mean equal to the limit is not below it."""

SEED_KEY = "training.seed"

_NAMED_DATA = 3


class AlignmentRule(msgspec.Struct, frozen=True):
    id: str
    judges: Literal["mean", "each"]
    """`mean`: the mean relative error must be below the limit. `each`: no single relative error may exceed it."""
    first_step: int
    limit: float

    def allows(self, error: float) -> bool:
        return error < self.limit - SLACK if self.judges == "mean" else error <= self.limit


RULES = {
    "flagperf-2pct": AlignmentRule("flagperf-2pct", "mean", first_step=21, limit=0.02),
    "exact": AlignmentRule("exact", "each", first_step=0, limit=0.0),
}


class StepError(msgspec.Struct, frozen=True):
    step: int
    loss: float
    reference: float
    error: float
    """Relative: |loss - reference| / |reference|."""


class StepGap(msgspec.Struct, frozen=True):
    """A step that cannot be compared. Every rule fails if there is one."""

    step: int
    remark: str


class Alignment(msgspec.Struct, frozen=True):
    rule: AlignmentRule
    aligned: bool
    first_step: int
    """First step that the rule judges; `last_step` is the last."""
    last_step: int
    num_compared: int
    """Judged steps that can be compared. Mean, largest error and drift are computed over these."""
    mean_error: float | None
    largest: StepError | None
    first_above: StepError | None
    """The first step whose error is not within the limit."""
    drift_per_step: float | None
    """Slope of a least-squares line through the signed errors. Positive if the run drifts above the reference."""
    gaps: tuple[StepGap, ...]
    """Includes steps that the rule does not judge."""

    @property
    def num_judged(self) -> int:
        return self.last_step - self.first_step + 1


def obstacles(curve: LossCurve, reference: LossCurve, rule: AlignmentRule) -> list[Message]:
    """Return why the curves cannot be judged by this rule. Empty if they can."""
    if curve.case != reference.case:
        return [message("align.other_case", case=curve.case, other=reference.case)]
    wrong = [
        message("align.contrast", name=name, value=_listed(a, b), other=_listed(b, a))
        for name, a, b in _conditions(curve, reference)
        if _are_known(a, b) and a != b
    ]
    if (curve.first_step, curve.last_step) != (reference.first_step, reference.last_step):
        ends = {"a": curve.first_step, "b": curve.last_step, "c": reference.first_step, "d": reference.last_step}
        return [*wrong, message("align.other_steps", **ends)]
    if curve.last_step < rule.first_step:
        steps = {"first": rule.first_step, "last": curve.last_step}
        return [*wrong, message("align.too_short", rule=rule.id, **steps)]
    for a, b in zip(curve.points, reference.points, strict=True):
        if None not in (a.samples, b.samples) and a.samples != b.samples:
            return [*wrong, message("align.other_samples", step=a.step, samples=a.samples, others=b.samples)]
    return wrong


def unstated(curve: LossCurve, reference: LossCurve) -> list[Message]:
    """Return the conditions that were not compared, because one of the curves does not record them."""
    names = [name for name, a, b in _conditions(curve, reference) if not _are_known(a, b)]
    is_counted = all(point.samples is not None for point in curve.points + reference.points)
    return names if is_counted else [*names, message("align.samples_per_step")]


def changed_values(curve: LossCurve, reference: LossCurve) -> dict[str, tuple[Any, Any]]:
    """Return the values that both curves record and that differ: shape, precision, tuning. They may."""
    both = sorted(set(curve.values) & set(reference.values))
    return {
        key: (curve.values[key], reference.values[key]) for key in both if curve.values[key] != reference.values[key]
    }


def align_curves(curve: LossCurve, reference: LossCurve, rule: AlignmentRule) -> Alignment:
    """Judge curves that have no `obstacles`."""
    pairs = list(zip(curve.points, reference.points, strict=True))
    gaps = tuple(gap for pair in pairs for gap in _gaps(*pair))
    judged = [pair for pair in pairs if pair[0].step >= rule.first_step]
    errors = [error for pair in judged if (error := _error(*pair)) is not None]
    mean = sum(error.error for error in errors) / len(errors) if errors else None
    largest = max(errors, key=lambda error: error.error, default=None)
    decisive = mean if rule.judges == "mean" or largest is None else largest.error
    return Alignment(
        rule=rule,
        aligned=not gaps and decisive is not None and rule.allows(decisive),
        first_step=judged[0][0].step,
        last_step=judged[-1][0].step,
        num_compared=len(errors),
        mean_error=mean,
        largest=largest,
        first_above=next((error for error in errors if not rule.allows(error.error)), None),
        drift_per_step=_slope(errors),
        gaps=gaps,
    )


# --- one step -------------------------------------------------------------------------------------------------------


def _error(point: CurvePoint, reference: CurvePoint) -> StepError | None:
    """Return None if a loss is missing, or if the reference is 0 and the relative error is undefined."""
    if point.loss is None or reference.loss is None:
        return None
    difference = abs(point.loss - reference.loss)
    error = 0.0 if difference == 0 else difference / abs(reference.loss) if reference.loss else math.inf
    return StepError(point.step, point.loss, reference.loss, error) if math.isfinite(error) else None


def _gaps(point: CurvePoint, reference: CurvePoint) -> Iterator[StepGap]:
    for name, each in (("RUN", point), ("REFERENCE", reference)):
        if each.loss is None:
            yield StepGap(each.step, f"{name}: {each.remark or 'no loss'}")
    if point.loss is not None and reference.loss is not None and _error(point, reference) is None:
        yield StepGap(point.step, f"the relative error of {point.loss:g} vs. {reference.loss:g} is undefined")


def _slope(errors: Sequence[StepError]) -> float | None:
    if len(errors) < 2:
        return None
    signed = [math.copysign(error.error, error.loss - error.reference) for error in errors]
    centre = sum(error.step for error in errors) / len(errors)
    spread = sum((error.step - centre) ** 2 for error in errors)
    slope = sum((error.step - centre) * value for error, value in zip(errors, signed, strict=True)) / spread
    return slope if math.isfinite(slope) else None


# --- conditions that affect a curve ---------------------------------------------------------------------------------


def _conditions(curve: LossCurve, reference: LossCurve) -> list[tuple[Message, Any, Any]]:
    """Return the name of each condition, its value of the run and that of the reference."""
    return [
        (message("align.case_version"), curve.case_version, reference.case_version),
        (message("align.key", key=SEED_KEY), curve.values.get(SEED_KEY), reference.values.get(SEED_KEY)),
        (message("align.model"), curve.model, reference.model),
        (message("align.data"), curve.data, reference.data),
    ]


def _are_known(*values: Any) -> bool:
    return not any(value is None or value in ({}, ()) for value in values)


def _listed(value: Any, other: Any) -> Message | str:
    """Name only the parts that `other` lacks, if the value has several."""
    if isinstance(value, dict):
        parts = [f"{count} {name}" for name, count in value.items() if count != other.get(name)]
        return ", ".join(parts) or message("align.less")
    if isinstance(value, tuple):
        own = [f"{data.name} (sha256 {data.sha256[:12]})" for data in value if data not in other]
        rest = " ..." if len(own) > _NAMED_DATA else ""
        return ", ".join(own[:_NAMED_DATA]) + rest if own else message("align.less")
    return str(value)


# loss_aligned: the verdict of an alignment as a metric. It needs a reference, so it is computed for a report and not
# stored in the run.


LOSS_ALIGNED = MetricEntry(
    name="loss_aligned",
    unit="",
    group="alignment",
    scope="system",
    formula=lambda _run: absent("not_applicable", "align.no_reference"),
    format=lambda value: str(bool(value)),
    title={"en": "Loss alignment", "zh": "精度对齐"},
    remark={
        "en": "whether the loss follows a reference step by step; rule, reference and mean error are in the notes",
        "zh": "各步损失是否与参考曲线一致，规则、参考与平均相对误差见注",
    },
    heading="Alignment",
)

NO_REFERENCE = LOSS_ALIGNED.metric(absent("not_applicable", "align.no_reference"), unit="")


def loss_aligned(curve: LossCurve | Absent, reference: LossCurve, rule: AlignmentRule, reference_name: str) -> Metric:
    """Return 1 if the curve follows the reference, else 0. Absent if the two cannot be compared."""
    finding: Finding
    if isinstance(curve, Absent):
        finding = curve
    elif found := obstacles(curve, reference, rule):
        inputs = {"reference": _identity(reference), "obstacles": [str(each) for each in found]}
        finding = Absent("not_applicable", message("align.other_experiment", why=found[0]), inputs)
    else:
        alignment = align_curves(curve, reference, rule)
        finding = Found(int(alignment.aligned), alignment_fields(alignment, curve, reference))
    named = {"reference_name": reference_name, **finding.inputs}
    return LOSS_ALIGNED.metric(msgspec.structs.replace(finding, inputs=named), unit="")


def alignment_fields(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> dict[str, Any]:
    """Return what JSON has of an alignment. `differences` holds (value of the run, value of the reference). Errors are
    fractions of 1. Unknown values are None."""
    return {
        "run": _identity(curve),
        "reference": _identity(reference),
        **msgspec.to_builtins(alignment),
        "num_judged": alignment.num_judged,
        "differences": changed_values(curve, reference),
        "unstated": [str(name) for name in unstated(curve, reference)],
        "unstated_messages": msgspec.to_builtins(unstated(curve, reference)),
    }


def _identity(curve: LossCurve) -> dict[str, Any]:
    names = ("run", "case", "case_version", "profile", "vendor", "device", "shape")
    return {name: getattr(curve, name) for name in names}
