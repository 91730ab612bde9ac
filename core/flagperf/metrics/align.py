"""Alignment: whether one loss curve follows another, by a named rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from flagperf.messages import Message, message
from flagperf.metrics.curve import CurvePoint, LossCurve

SLACK = 1e-12
"""Tolerance for floating-point rounding: a mean equal to the limit is not below it."""

SEED_KEY = "training.seed"
_NAMED_DATA = 3


class Rule(msgspec.Struct, frozen=True):
    id: str
    judges: Literal["mean", "each"]
    """`mean`: the mean relative error must be below the limit. `each`: no single relative error may exceed it."""
    first_step: int
    limit: float

    def allows(self, error: float) -> bool:
        return error < self.limit - SLACK if self.judges == "mean" else error <= self.limit


RULES = {
    "flagperf-2pct": Rule("flagperf-2pct", "mean", first_step=21, limit=0.02),
    "exact": Rule("exact", "each", first_step=0, limit=0.0),
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
    rule: Rule
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


def obstacles(curve: LossCurve, reference: LossCurve, rule: Rule) -> list[Message]:
    """Reasons why the curves cannot be judged by this rule. Empty if they can."""
    if curve.case != reference.case:
        return [message("align.other_case", case=curve.case, other=reference.case)]
    wrong = [_contrast(name, a, b) for name, a, b in _conditions(curve, reference) if _are_known(a, b) and a != b]
    if (curve.first_step, curve.last_step) != (reference.first_step, reference.last_step):
        ends = {"a": curve.first_step, "b": curve.last_step, "c": reference.first_step, "d": reference.last_step}
        return [*wrong, message("align.other_steps", **ends)]
    if curve.last_step < rule.first_step:
        steps = {"first": rule.first_step, "last": curve.last_step}
        return [*wrong, message("align.too_short", rule=rule.id, **steps)]
    return wrong + _unequal_samples(curve, reference)


def unstated(curve: LossCurve, reference: LossCurve) -> list[Message]:
    """Conditions that affect a curve but were not compared, because one of the curves does not record them."""
    names = [name for name, a, b in _conditions(curve, reference) if not _are_known(a, b)]
    is_counted = all(point.samples is not None for point in curve.points + reference.points)
    return names if is_counted else [*names, message("align.samples_per_step")]


def changed_values(curve: LossCurve, reference: LossCurve) -> dict[str, tuple[Any, Any]]:
    """Values that both curves record and that differ: shape, precision, tuning. Allowed, but reported."""
    both = sorted(set(curve.values) & set(reference.values))
    return {
        key: (curve.values[key], reference.values[key]) for key in both if curve.values[key] != reference.values[key]
    }


def align_curves(curve: LossCurve, reference: LossCurve, rule: Rule) -> Alignment:
    """Requires curves without `obstacles`."""
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
    """None if a loss is missing, or if the reference is 0 and the relative error is undefined."""
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
    """Name, value of the run, value of the reference."""
    return [
        (message("align.case_version"), curve.case_version, reference.case_version),
        (message("align.key", key=SEED_KEY), curve.values.get(SEED_KEY), reference.values.get(SEED_KEY)),
        (message("align.model"), curve.model, reference.model),
        (message("align.data"), curve.data, reference.data),
    ]


def _are_known(*values: Any) -> bool:
    return not any(value is None or value in ({}, ()) for value in values)


def _contrast(name: Message, a: Any, b: Any) -> Message:
    return message("align.contrast", name=name, value=_listed(a, b), other=_listed(b, a))


def _listed(value: Any, other: Any) -> Message | str:
    """For a value with several parts, only the parts that `other` lacks."""
    if isinstance(value, dict):
        parts = [f"{count} {name}" for name, count in value.items() if count != other.get(name)]
        return ", ".join(parts) or message("align.less")
    if isinstance(value, tuple):
        own = [f"{data.name} (sha256 {data.sha256[:12]})" for data in value if data not in other]
        rest = " ..." if len(own) > _NAMED_DATA else ""
        return ", ".join(own[:_NAMED_DATA]) + rest if own else message("align.less")
    return str(value)


def _unequal_samples(curve: LossCurve, reference: LossCurve) -> list[Message]:
    for a, b in zip(curve.points, reference.points, strict=True):
        if None not in (a.samples, b.samples) and a.samples != b.samples:
            return [message("align.other_samples", step=a.step, samples=a.samples, others=b.samples)]
    return []
