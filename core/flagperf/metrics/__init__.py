"""Metrics: pure functions of recorded events and samples. No clock, disk or device is used here.

All names are lazy: listing cases needs the registry alone.
"""

from typing import TYPE_CHECKING

from flagperf.lazy_names import lazy_modules

_MODULES = {
    "align": (
        "RULES",
        "Alignment",
        "Rule",
        "StepError",
        "StepGap",
        "align_curves",
        "changed_values",
        "obstacles",
        "unstated",
    ),
    "aligned": ("LOSS_ALIGNED", "NO_REFERENCE", "alignment_fields", "loss_aligned"),
    "compute": ("compute_metrics", "metric_versions"),
    "curve": ("CurveData", "CurvePoint", "LossCurve", "loss_curve"),
    "metric": ("Interval", "Mark", "Metric", "Reason", "Record"),
    "observed": ("Observed",),
    "rows": ("MeasuredRow",),
}
"""Module -> the names that it gives."""

if TYPE_CHECKING:
    from flagperf.metrics.alignment import (
        LOSS_ALIGNED,
        NO_REFERENCE,
        RULES,
        Alignment,
        CurveData,
        CurvePoint,
        LossCurve,
        Rule,
        StepError,
        StepGap,
        align_curves,
        alignment_fields,
        changed_values,
        loss_aligned,
        loss_curve,
        obstacles,
        unstated,
    )
    from flagperf.metrics.entry import Mark, Metric, Reason, Record
    from flagperf.metrics.observed import Observed
    from flagperf.metrics.registry import compute_metrics, metric_versions
    from flagperf.metrics.rows import MeasuredRow
    from flagperf.stats import Interval
else:
    __getattr__ = lazy_modules(__name__, _MODULES)

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
    "Observed",
    "Reason",
    "Record",
    "Rule",
    "StepError",
    "StepGap",
    "align_curves",
    "alignment_fields",
    "changed_values",
    "compute_metrics",
    "loss_aligned",
    "loss_curve",
    "metric_versions",
    "obstacles",
    "unstated",
]
