"""The process that computes: takes a device, gives the case its Context, writes events."""

from flagperf.worker.context import Context, Step

__all__ = ["Context", "Step"]
