"""flagperf's suites on simulated Hygon cards, and the tables of hy-smi's outputs."""

from __future__ import annotations

from pathlib import Path

import hygon_outputs
import pytest
from hygon_builders import lay_out

from flagperf.testing import (
    Answer,
    DeviceSuite,
    LauncherSuite,
    MemorySuite,
    OutputSuite,
    Rig,
    RunSuite,
    Simulation,
    write_tool,
)
from flagperf_hygon.smi import parse_json, parse_table


class HygonRig(Rig):
    vendor = "hygon"
    recorded = hygon_outputs.RECORDED

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        write_tool(simulation.root.parent / "bin", "hy-smi", [Answer(("*",), "", "driver lost", returncode=1)])


class TestOutputs(OutputSuite):
    rig = HygonRig()
    variants = hygon_outputs.VARIANTS
    refused = hygon_outputs.REFUSED
    counted = (parse_json, parse_table)
    captures = hygon_outputs.CAPTURES


@pytest.mark.run
class TestDevice(DeviceSuite):
    rig = HygonRig()


@pytest.mark.run
class TestMemory(MemorySuite):
    rig = HygonRig()


@pytest.mark.run
class TestLauncher(LauncherSuite):
    rig = HygonRig()


@pytest.mark.full
@pytest.mark.run
class TestRun(RunSuite):
    rig = HygonRig()
