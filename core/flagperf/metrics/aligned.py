"""loss_aligned: the verdict of an alignment as a metric of a run. It is not among those that every run has: it needs a
reference, and so is made when a report is."""

from __future__ import annotations

from typing import Any

import msgspec

from flagperf.metrics.align import Alignment, Rule, align, changed_values, obstacles, unstated
from flagperf.metrics.curve import LossCurve
from flagperf.metrics.definitions import Definition
from flagperf.metrics.finding import Absent, Finding, Found
from flagperf.metrics.metric import Metric

LOSS_ALIGNED = Definition("loss_aligned", "", "system", heading="Alignment")

NO_REFERENCE = LOSS_ALIGNED.metric(Absent("not_applicable", "no reference curve was given"))


def loss_aligned(curve: LossCurve | Absent, reference: LossCurve, rule: Rule, reference_name: str) -> Metric:
    """1 where the curve follows the reference, 0 where it does not; without a value where that cannot be judged."""
    finding = _verdict(curve, reference, rule)
    named = {"reference_name": reference_name, **finding.inputs}
    return LOSS_ALIGNED.metric(msgspec.structs.replace(finding, inputs=named))


def alignment_fields(alignment: Alignment, curve: LossCurve, reference: LossCurve) -> dict[str, Any]:
    """`differences`: value of the run, then of the reference. Errors are shares of 1; what is not known is None."""
    return {
        "run": _identity(curve),
        "reference": _identity(reference),
        **msgspec.to_builtins(alignment),
        "num_judged": alignment.num_judged,
        "differences": changed_values(curve, reference),
        "unstated": unstated(curve, reference),
    }


def _verdict(curve: LossCurve | Absent, reference: LossCurve, rule: Rule) -> Finding:
    if isinstance(curve, Absent):
        return curve
    found = obstacles(curve, reference, rule)
    if found:
        detail = f"the reference is of another experiment: {found[0]}"
        return Absent("not_applicable", detail, {"reference": _identity(reference), "obstacles": found})
    alignment = align(curve, reference, rule)
    return Found(int(alignment.aligned), alignment_fields(alignment, curve, reference))


def _identity(curve: LossCurve) -> dict[str, Any]:
    names = ("run", "case", "case_version", "profile", "vendor", "device", "shape")
    return {name: getattr(curve, name) for name in names}
