"""loss_aligned: the verdict of an alignment as a metric. It needs a reference, so it is computed for a report and not
stored in the run."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.messages import message
from flagperf.metrics.align import Alignment, Rule, align_curves, changed_values, obstacles, unstated
from flagperf.metrics.curve import LossCurve
from flagperf.metrics.entry import MetricEntry
from flagperf.metrics.finding import Absent, Finding, Found, absent
from flagperf.metrics.metric import Metric

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


def loss_aligned(curve: LossCurve | Absent, reference: LossCurve, rule: Rule, reference_name: str) -> Metric:
    """1 if the curve follows the reference, else 0. Absent if the two cannot be compared."""
    finding = _verdict(curve, reference, rule)
    named = {"reference_name": reference_name, **finding.inputs}
    return LOSS_ALIGNED.metric(msgspec.structs.replace(finding, inputs=named), unit="")


def alignment_fields(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> dict[str, Any]:
    """`differences` holds (value of the run, value of the reference). Errors are fractions of 1. Unknown values are
    None."""
    return {
        "run": _identity(curve),
        "reference": _identity(reference),
        **msgspec.to_builtins(alignment),
        "num_judged": alignment.num_judged,
        "differences": changed_values(curve, reference),
        "unstated": [str(name) for name in unstated(curve, reference)],
        "unstated_messages": msgspec.to_builtins(unstated(curve, reference)),
    }


def _verdict(curve: LossCurve | Absent, reference: LossCurve, rule: Rule) -> Finding:
    if isinstance(curve, Absent):
        return curve
    found = obstacles(curve, reference, rule)
    if found:
        inputs = {"reference": _identity(reference), "obstacles": [str(each) for each in found]}
        return Absent("not_applicable", message("align.other_experiment", why=found[0]), inputs)
    alignment = align_curves(curve, reference, rule)
    return Found(int(alignment.aligned), alignment_fields(alignment, curve, reference))


def _identity(curve: LossCurve) -> dict[str, Any]:
    names = ("run", "case", "case_version", "profile", "vendor", "device", "shape")
    return {name: getattr(curve, name) for name in names}
