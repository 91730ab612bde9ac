"""The worker process: activates a device, runs the case with a Context and writes events."""

from flagperf.attribute_docs import show_attributes
from flagperf.worker.context import Context
from flagperf.worker.evaluation import Evaluation
from flagperf.worker.step import Step

__all__ = ["Context", "Evaluation", "Step"]

show_attributes([Context, Evaluation, Step])
