from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from hygon_builders import lay_out, transcript

from flagperf.api import Reading
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
from flagperf_hygon.smi import parse_csv, parse_json, parse_table, parse_text

pytestmark = pytest.mark.run
MIB = 1 << 20
PERCENT_ONLY = dict.fromkeys(("used_bytes", "total_bytes"), "the table gives memory in whole percents only")


class HygonRig(Rig):
    vendor = "hygon"
    recorded: ClassVar[tuple[Recorded, ...]] = (
        Recorded(
            parse_json,
            transcript("json_showmeminfo_mib"),
            (Reading("0", 1204 * MIB, 65520 * MIB), Reading("1", 40961 * MIB, 65520 * MIB)),
        ),
        Recorded(
            parse_csv,
            transcript("csv_dcu_from_1"),
            (Reading("1", 17 * MIB, 32752 * MIB, 0.0), Reading("2", 30011 * MIB, 32752 * MIB, 64.0)),
        ),
        Recorded(
            parse_text,
            transcript("text_hcu_tabs"),
            (Reading("0", 6 * MIB, None, 0.5), Reading("1", 2054 * MIB, None, 31.5)),
        ),
        Recorded(
            parse_table,
            transcript("table_hcu_dec_enc"),
            (
                Reading(
                    "0",
                    None,
                    None,
                    0.0,
                    151.0,
                    39.0,
                    PERCENT_ONLY,
                    {"memory_use_percent": "0%", "power_limit_watts": "820.0", "form": "table"},
                ),
                Reading(
                    "1",
                    None,
                    None,
                    88.4,
                    613.5,
                    71.0,
                    PERCENT_ONLY,
                    {"memory_use_percent": "92%", "power_limit_watts": "820.0", "form": "table"},
                ),
            ),
        ),
    )

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        write_tool(simulation.root.parent / "bin", "hy-smi", [Answer(("*",), "", "driver lost", returncode=1)])


class TestDevice(DeviceSuite):
    rig = HygonRig()


class TestMemory(MemorySuite):
    rig = HygonRig()


class TestLauncher(LauncherSuite):
    rig = HygonRig()


class TestRun(RunSuite):
    rig = HygonRig()
