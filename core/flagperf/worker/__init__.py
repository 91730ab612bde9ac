"""The process that computes: takes a device, gives the case its Context, writes events."""

from flagperf.worker.context import Context
from flagperf.worker.evaluation import Evaluation
from flagperf.worker.step import Step

__all__ = ["Context", "Evaluation", "Step"]
