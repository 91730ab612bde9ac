"""The suites that every adapter passes, on simulated cards."""

from __future__ import annotations

from pathlib import Path

import pytest
from metax_builders import SAID, lay_out, transcript

from flagperf.testing import (
    Answer,
    DeviceSuite,
    LauncherSuite,
    MemorySuite,
    Recorded,
    Rig,
    RunSuite,
    Simulation,
    write_tool,
)

pytestmark = pytest.mark.run


class MetaxRig(Rig):
    vendor = "metax"
    recorded = tuple(Recorded(parse, transcript(name), readings) for name, (parse, readings) in SAID.items())

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        error = Answer(("*",), "", "Sysfs error: No such file or directory\n", returncode=1)
        write_tool(simulation.root / "bin", "mx-smi", [error])


class TestDevice(DeviceSuite):
    rig = MetaxRig()


class TestMemory(MemorySuite):
    rig = MetaxRig()


class TestLauncher(LauncherSuite):
    rig = MetaxRig()


class TestRun(RunSuite):
    rig = MetaxRig()
