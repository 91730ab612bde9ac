"""From a Job to its ending: agents on all nodes, supervised."""

from flagperf.launch.carry_out import carry_out
from flagperf.launch.interruption import raise_on_signals, signals_restored
from flagperf.launch.supervision import OnProgress

__all__ = ["OnProgress", "carry_out", "raise_on_signals", "signals_restored"]
