"""The command's side of its agents: one process per node, one loop for all of them."""

from flagperf.fleet.fleet import Answers, Fleet, FleetEvent, Wrapping, open_fleet

__all__ = ["Answers", "Fleet", "FleetEvent", "Wrapping", "open_fleet"]
