"""From a Job to its ending: one agent per node, supervised."""

from flagperf.launch.run_job import run_job
from flagperf.launch.signals import raise_on_signals, signals_restored
from flagperf.launch.supervision import OnProgress

__all__ = ["OnProgress", "raise_on_signals", "run_job", "signals_restored"]
