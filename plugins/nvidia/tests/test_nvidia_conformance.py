"""flagperf's suites on simulated NVIDIA cards, and the tables of nvidia-smi's outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nvidia_outputs
import pytest
from nvidia_builders import PATIENCE_SECONDS, lay_out, nvml_card, nvml_text, write_nvml

from flagperf.api import Device
from flagperf.testing import DeviceSuite, LauncherSuite, MemorySuite, OutputSuite, Rig, RunSuite, Simulation


class NvidiaRig(Rig):
    vendor = "nvidia"
    recorded = nvidia_outputs.RECORDED

    def lay_out(self, folder: Path) -> Simulation:
        return lay_out(folder)

    def break_source(self, simulation: Simulation) -> None:
        cards = [nvml_card(index, errors="*:999,nvmlDeviceGetHandleByIndex_v2:999") for index in range(2)]
        write_nvml(simulation.root / "nvml.txt", nvml_text(cards, errors="nvmlInitWithFlags:9"))

    def expected_name(self, device: Device) -> str:
        return device.uuid


class TestOutputs(OutputSuite):
    rig = NvidiaRig()
    variants = nvidia_outputs.VARIANTS
    refused = nvidia_outputs.REFUSED
    captures = nvidia_outputs.CAPTURES


@pytest.mark.run
class TestDevice(DeviceSuite):
    rig = NvidiaRig()


@pytest.mark.run
class TestMemory(MemorySuite):
    rig = NvidiaRig()


@pytest.mark.run
class TestLauncher(LauncherSuite):
    rig = NvidiaRig()


@pytest.mark.run
class TestRun(RunSuite):
    rig = NvidiaRig()


@pytest.mark.full
def test_the_installed_adapter_passes_where_there_are_no_cards() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", "vendors", "check", "nvidia"],
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("nvidia: offline: pass (") and done.stdout.endswith("; hardware: not run\n")
