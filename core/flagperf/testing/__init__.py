"""For those who test adapters: machines in folders, tools that replay, memory that moves, reference
material, and suites to pass.

pytest is needed for the suites (`pip install 'flagperf[testing]'`), so they are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

__all__ = [
    "Answer", "DeviceSuite", "InstalledRig", "LauncherSuite", "MachineFolder", "MemorySuite", "MovingMemory",
    "Recorded", "Rig", "RunSuite", "SimulatedCard", "Simulation", "shared_file", "simulated_environ", "write_memory",
    "write_tool",
]  # fmt: skip

_SUITES = {
    "DeviceSuite": "device_suite",
    "LauncherSuite": "launcher_suite",
    "MemorySuite": "memory_suite",
    "RunSuite": "run_suite",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_SUITES[name]}"), name)
