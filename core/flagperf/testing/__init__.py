"""Machines in folders, tools that replay, memory that moves, and suites to pass, all for authors of adapters."""

from __future__ import annotations

from flagperf.testing.device_suite import DeviceSuite
from flagperf.testing.launcher_suite import LauncherSuite
from flagperf.testing.machine_folder import Answer, MachineFolder, simulated_environ, write_memory, write_tool
from flagperf.testing.memory_suite import MemorySuite, MovingMemory
from flagperf.testing.output_suite import OutputSuite, Refused
from flagperf.testing.run_suite import RunSuite
from flagperf.testing.suite import InstalledRig, Recorded, Rig, SimulatedCard, Simulation, shared_file

__all__ = [
    "Answer",
    "DeviceSuite",
    "InstalledRig",
    "LauncherSuite",
    "MachineFolder",
    "MemorySuite",
    "MovingMemory",
    "OutputSuite",
    "Recorded",
    "Refused",
    "Rig",
    "RunSuite",
    "SimulatedCard",
    "Simulation",
    "shared_file",
    "simulated_environ",
    "write_memory",
    "write_tool",
]
