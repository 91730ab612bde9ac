"""The worker process: activates a device, runs the case with a Context and writes events."""

from flagperf.worker.context import Context
from flagperf.worker.evaluation import Evaluation
from flagperf.worker.step import Step
from flagperf.worker.timed import Timed, WrongOutput

__all__ = ["Context", "Evaluation", "Step", "Timed", "WrongOutput"]
