"""For those who test adapters: machines in folders, tools that replay, memory that moves, and suites to pass."""

from flagperf.testing.folders import MachineFolder
from flagperf.testing.tools import Answer, simulated_environ, write_memory, write_tool

__all__ = ["Answer", "MachineFolder", "simulated_environ", "write_memory", "write_tool"]
