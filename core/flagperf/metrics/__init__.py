"""Numbers from a record: pure functions of events and samples, with no clock, disk or device."""

from flagperf.metrics.align import RULES, Alignment, Gap, Rule, StepError, align, changed_values, obstacles, unstated
from flagperf.metrics.aligned import LOSS_ALIGNED, NO_REFERENCE, alignment_fields, loss_aligned
from flagperf.metrics.compute import compute_metrics
from flagperf.metrics.curve import CurveData, CurvePoint, LossCurve, loss_curve
from flagperf.metrics.metric import Interval, Mark, Metric, Reason, Record

__all__ = [
    "LOSS_ALIGNED", "NO_REFERENCE", "RULES", "Alignment", "CurveData", "CurvePoint", "Gap", "Interval", "LossCurve",
    "Mark", "Metric", "Reason", "Record", "Rule", "StepError", "align", "alignment_fields", "changed_values",
    "compute_metrics", "loss_aligned", "loss_curve", "obstacles", "unstated",
]  # fmt: skip
