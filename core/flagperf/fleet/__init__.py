"""The command's side of its agents: one process per node, one loop for all of them."""

from flagperf.fleet.answers import Answers, FleetEvent
from flagperf.fleet.fleet import Fleet, Wrapping, open_fleet

__all__ = ["Answers", "Fleet", "FleetEvent", "Wrapping", "open_fleet"]
