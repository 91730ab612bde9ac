"""flagperf's suites on simulated MetaX cards, and the tables of mx-smi's outputs."""

from __future__ import annotations

from pathlib import Path

import metax_outputs
import pytest
from metax_builders import lay_out

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
from flagperf_metax.smi import (
    parse_board_power,
    parse_json,
    parse_memory,
    parse_temperature,
    parse_usage,
    parse_version,
)


class MetaxRig(Rig):
    vendor = "metax"
    recorded = metax_outputs.RECORDED

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        error = Answer(("*",), "", "Sysfs error: No such file or directory\n", returncode=1)
        write_tool(simulation.root / "bin", "mx-smi", [error])


class TestOutputs(OutputSuite):
    rig = MetaxRig()
    variants = metax_outputs.VARIANTS
    refused = metax_outputs.REFUSED
    counted = (parse_memory, parse_board_power, parse_temperature, parse_usage, parse_version, parse_json)
    captures = metax_outputs.CAPTURES


@pytest.mark.run
class TestDevice(DeviceSuite):
    rig = MetaxRig()


@pytest.mark.run
class TestMemory(MemorySuite):
    rig = MetaxRig()


@pytest.mark.run
class TestLauncher(LauncherSuite):
    rig = MetaxRig()


@pytest.mark.full
@pytest.mark.run
class TestRun(RunSuite):
    rig = MetaxRig()
