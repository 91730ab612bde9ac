"""Rows of base cases on a simulated card: power and energy of a row, and the link to the host, by the real command."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nvidia_builders import address, lay_out, nvml_card, nvml_text, write_nvml

from flagperf.kit import module_command
from flagperf.testing import Simulation

pytestmark = pytest.mark.run

WATTS = 250.5
SHORT = ("measure.warmup_cap_seconds=0.1", "measure.warmup_seconds=0", "measure.min_samples=10")


def card_in_a_slot(folder: Path) -> Simulation:
    """A card that has no energy counter, in a slot of which sysfs tells."""
    simulation = lay_out(folder)
    cards = [nvml_card(index, used=0, milliwatts=int(WATTS * 1000), millijoules=None) for index in range(2)]
    write_nvml(folder / "nvml.txt", nvml_text(cards))
    slot = folder / "sys/bus/pci/devices" / address(0)
    slot.mkdir(parents=True, exist_ok=True)
    for name, text in (("current_link_speed", "2.5 GT/s PCIe"), ("max_link_speed", "16.0 GT/s PCIe")):
        (slot / name).write_text(f"{text}\n")
    (slot / "current_link_width").write_text("16\n")
    return simulation


def flagperf(simulation: Simulation, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*module_command(sys.executable, "flagperf"), *arguments],
        env=simulation.environ(), cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def recorded(folder: Path) -> Any:
    latest = max((folder / "runs").iterdir())
    return json.loads((latest / "run.json").read_text())


def test_power_and_energy_of_a_row_come_from_the_cards_samples(tmp_path: Path) -> None:
    simulation = card_in_a_slot(tmp_path / "machine")
    settings = (
        *SHORT,
        "gemm.headline=1536x1536x1536",  # long, so that what a busy machine does between samples counts for little
        "gemm.shapes=[]",
        'gemm.precisions=["fp32"]',
        "measure.seconds=10",
    )
    chosen = [part for setting in settings for part in ("--set", setting)]
    for _ in range(3):  # on a busy machine the probe may come late, and the rules then refuse the figure
        flagperf(simulation, tmp_path, "run", "gemm", "--vendor", "nvidia", "--sample-seconds", "0.3", *chosen)
        (row,) = recorded(tmp_path)["rows"]
        if row.get("power_problem") not in ("gap", "few_samples", "not_alone"):
            break
    assert row.get("power") == pytest.approx(WATTS), row
    window = (row["window"]["ended_ns"] - row["window"]["began_ns"]) / 1e9
    assert row["energy"] == pytest.approx(WATTS * window / row["total_calls"], rel=0.05)
    flagperf(simulation, tmp_path, "runs", "verify", "latest")
    page = flagperf(simulation, tmp_path, "report", "latest", "--format", "md", "--allow-simulated")
    assert f"{WATTS} W" in page and "energy of a call" in page
    (line,) = csv.DictReader(io.StringIO(flagperf(simulation, tmp_path, "report", "latest", "--format", "csv")))
    assert float(line["power"]) == pytest.approx(WATTS) and float(line["energy"]) == row["energy"]


def test_transfers_stand_beside_what_the_link_to_the_host_can_do(tmp_path: Path) -> None:
    simulation = card_in_a_slot(tmp_path / "machine")
    settings = (*SHORT, "host_to_device.headline=1MiB", "host_to_device.sizes=[]", "measure.seconds=0.05")
    chosen = [part for setting in settings for part in ("--set", setting)]
    flagperf(simulation, tmp_path, "run", "host_to_device", "--vendor", "nvidia", *chosen)
    metrics = {metric["name"]: metric for metric in recorded(tmp_path)["metrics"]}
    for name in ("h2d_pageable", "d2h_pageable"):
        inputs = metrics[name]["inputs"]
        assert inputs["peak"] == pytest.approx(31.5e9, rel=1e-3)
        assert inputs["peak_source"] == "PCIe Gen4 x16, by sysfs"
    page = flagperf(simulation, tmp_path, "report", "latest", "--format", "md", "--allow-simulated")
    assert "Host link: PCIe Gen4 x16 (Gen1 x16 when it was looked at)" in page
    assert "31.5 GB/s" in page
