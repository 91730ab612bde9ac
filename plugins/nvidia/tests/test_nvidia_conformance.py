"""flagperf's suites on simulated NVIDIA cards: a machine in a folder, and a library that plays NVML."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from nvidia_builders import (
    CARDS,
    FIRST,
    PATIENCE_SECONDS,
    SECOND,
    nvml_card,
    nvml_text,
    simulate,
    transcript,
    write_nvml,
)

from flagperf.api import Device, Reading
from flagperf.testing import DeviceSuite, LauncherSuite, MemorySuite, Recorded, Rig, RunSuite, Simulation
from flagperf_nvidia.smi import parse_list, parse_query_gpu

pytestmark = pytest.mark.run


class NvidiaRig(Rig):
    vendor = "nvidia"
    recorded = (
        Recorded(parse_query_gpu, transcript("query_gpu"), tuple(CARDS)),
        Recorded(
            parse_list,
            transcript("list"),
            tuple(
                Reading(uuid, properties={"index": index, "name": "NVIDIA A100-SXM4-40GB", "uuid": uuid})
                for index, uuid in (("0", FIRST), ("1", SECOND))
            ),
        ),
    )

    def lay_out(self, folder: Path) -> Simulation:
        return simulate(folder)

    def break_source(self, simulation: Simulation) -> None:
        cards = [nvml_card(index, errors="*:999,nvmlDeviceGetHandleByIndex_v2:999") for index in range(2)]
        write_nvml(simulation.root / "nvml.txt", nvml_text(cards, errors="nvmlInitWithFlags:9"))

    def expected_name(self, device: Device) -> str:
        return device.uuid


class TestDevice(DeviceSuite):
    rig = NvidiaRig()


class TestMemory(MemorySuite):
    rig = NvidiaRig()


class TestLauncher(LauncherSuite):
    rig = NvidiaRig()


class TestRun(RunSuite):
    rig = NvidiaRig()


def test_the_installed_adapter_passes_where_there_are_no_cards() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", "vendors", "check", "nvidia"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("nvidia: offline: pass (") and done.stdout.endswith("; hardware: not run\n")
