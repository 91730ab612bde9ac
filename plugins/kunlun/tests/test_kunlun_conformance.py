from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from kunlun_builders import lay_out, transcript
from kunlun_readings import READ

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


class KunlunRig(Rig):
    vendor = "kunlun"
    recorded: ClassVar[tuple[Recorded, ...]] = tuple(
        Recorded(parse, transcript(name), tuple(said)) for name, parse, said in READ
    )

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        write_tool(simulation.root.parent / "bin", "xpu-smi", [Answer(("*",), "", "driver lost", returncode=1)])


class TestDevice(DeviceSuite):
    rig = KunlunRig()


class TestMemory(MemorySuite):
    rig = KunlunRig()


class TestLauncher(LauncherSuite):
    rig = KunlunRig()


class TestRun(RunSuite):
    rig = KunlunRig()
