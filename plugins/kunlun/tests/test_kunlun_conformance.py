from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from kunlun_builders import lay_out, transcript

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
from flagperf_kunlun.smi import parse_machine, parse_query, parse_table

pytestmark = pytest.mark.run
MIB = 1 << 20


class KunlunRig(Rig):
    """What each output says exactly stands in test_kunlun_smi.py; here it is damaged."""

    vendor = "kunlun"
    recorded: ClassVar[tuple[Recorded, ...]] = tuple(
        Recorded(parse, transcript(name), tuple(parse(transcript(name))))
        for parse, name in (
            (parse_machine, "machine_p800"),
            (parse_query, "query_p800"),
            (parse_table, "table_p800"),
            (parse_table, "table_xre4_14_columns"),
        )
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
