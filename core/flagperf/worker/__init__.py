"""The worker process: activates a device, runs the case with a Context and writes events."""

from flagperf.worker.context import Context, Evaluation
from flagperf.worker.step_timing import Step
from flagperf.worker.timer import Timed, WrongOutput

__all__ = ["Context", "Evaluation", "Step", "Timed", "WrongOutput"]
