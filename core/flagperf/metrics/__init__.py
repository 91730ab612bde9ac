"""Numbers from a record: pure functions of events and samples, with no clock, disk or device."""

from flagperf.metrics.compute import compute_metrics
from flagperf.metrics.metric import Interval, Mark, Metric, Reason, Record

__all__ = ["Interval", "Mark", "Metric", "Reason", "Record", "compute_metrics"]
