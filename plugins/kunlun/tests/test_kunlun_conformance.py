"""flagperf's suites on simulated Kunlunxin cards, and the tables of xpu-smi's outputs."""

from __future__ import annotations

from pathlib import Path

import kunlun_outputs
import pytest
from kunlun_builders import lay_out

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


class KunlunRig(Rig):
    vendor = "kunlun"
    recorded = kunlun_outputs.RECORDED

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        write_tool(simulation.root.parent / "bin", "xpu-smi", [Answer(("*",), "", "driver lost", returncode=1)])


class TestOutputs(OutputSuite):
    rig = KunlunRig()
    variants = kunlun_outputs.VARIANTS
    refused = kunlun_outputs.REFUSED
    captures = kunlun_outputs.CAPTURES


@pytest.mark.run
class TestDevice(DeviceSuite):
    rig = KunlunRig()


@pytest.mark.run
class TestMemory(MemorySuite):
    rig = KunlunRig()


@pytest.mark.run
class TestLauncher(LauncherSuite):
    rig = KunlunRig()


@pytest.mark.full
@pytest.mark.run
class TestRun(RunSuite):
    rig = KunlunRig()
