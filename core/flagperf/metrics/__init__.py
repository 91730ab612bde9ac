"""Metrics: pure functions of recorded events and samples. No clock, disk or device is used here."""

from flagperf.metrics.align import (
    RULES,
    Alignment,
    Rule,
    StepError,
    StepGap,
    align,
    changed_values,
    obstacles,
    unstated,
)
from flagperf.metrics.aligned import LOSS_ALIGNED, NO_REFERENCE, alignment_fields, loss_aligned
from flagperf.metrics.compute import compute_metrics, metric_versions, recompute_metrics
from flagperf.metrics.curve import CurveData, CurvePoint, LossCurve, loss_curve
from flagperf.metrics.metric import Interval, Mark, Metric, Reason, Record
from flagperf.metrics.rows import MeasuredRow, measured_rows

__all__ = [
    "LOSS_ALIGNED",
    "NO_REFERENCE",
    "RULES",
    "Alignment",
    "CurveData",
    "CurvePoint",
    "Interval",
    "LossCurve",
    "Mark",
    "MeasuredRow",
    "Metric",
    "Reason",
    "Record",
    "Rule",
    "StepError",
    "StepGap",
    "align",
    "alignment_fields",
    "changed_values",
    "compute_metrics",
    "loss_aligned",
    "loss_curve",
    "measured_rows",
    "metric_versions",
    "obstacles",
    "recompute_metrics",
    "unstated",
]
