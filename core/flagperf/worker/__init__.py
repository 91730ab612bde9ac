"""The process that computes: takes a device, gives the case its Context, writes events."""

from flagperf.worker.context import Context, Evaluation, Step

__all__ = ["Context", "Evaluation", "Step"]
