"""For adapter authors: machines in folders, tools that replay, memory that moves, and suites to pass.

The suites import pytest, so they are lazy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagperf.lazy_names import lazy_names
from flagperf.testing.folders import MachineFolder
from flagperf.testing.moving_memory import MovingMemory
from flagperf.testing.rig import InstalledRig, Recorded, Rig, SimulatedCard, Simulation
from flagperf.testing.shared import shared_file
from flagperf.testing.tools import Answer, simulated_environ, write_memory, write_tool

if TYPE_CHECKING:
    from flagperf.testing.device_suite import DeviceSuite
    from flagperf.testing.launcher_suite import LauncherSuite
    from flagperf.testing.memory_suite import MemorySuite
    from flagperf.testing.run_suite import RunSuite
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "DeviceSuite": "flagperf.testing.device_suite",
            "LauncherSuite": "flagperf.testing.launcher_suite",
            "MemorySuite": "flagperf.testing.memory_suite",
            "RunSuite": "flagperf.testing.run_suite",
        },
    )

__all__ = [
    "Answer",
    "DeviceSuite",
    "InstalledRig",
    "LauncherSuite",
    "MachineFolder",
    "MemorySuite",
    "MovingMemory",
    "Recorded",
    "Rig",
    "RunSuite",
    "SimulatedCard",
    "Simulation",
    "shared_file",
    "simulated_environ",
    "write_memory",
    "write_tool",
]
