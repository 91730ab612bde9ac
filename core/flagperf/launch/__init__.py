"""From a Job to its ending: agents on all nodes, supervised."""

from flagperf.launch.carry_out import OnProgress, carry_out

__all__ = ["OnProgress", "carry_out"]
