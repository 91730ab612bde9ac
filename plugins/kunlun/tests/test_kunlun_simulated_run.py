"""One run from the command line to the page, on two simulated cards of which the second fills up in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kunlun_builders import lay_out

from flagperf.testing import MovingMemory, Simulation

pytestmark = pytest.mark.run
RUN = ("run", "distilbert", "--vendor", "kunlun", "--devices", "2")
LONG_ENOUGH = ("--set", "training.epochs=4", "--set", "evaluation.target=1.0")
"""Whatever the machine's speed, steps are left when the first ones have been seen."""


def flagperf(simulation: Simulation, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", *arguments, "--runs-dir", str(folder / "runs")],
        env=simulation.environ(), cwd=folder, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_peak_stands_with_its_card_and_time_in_bundle_table_and_page(tmp_path: Path) -> None:
    simulation = lay_out(tmp_path / "machine")
    with MovingMemory(simulation, tmp_path / "runs", card=1) as moving:
        table = flagperf(simulation, tmp_path, *RUN, *LONG_ENOUGH)
    assert moving.shown_ns is not None, "the run ended before the peak was sampled"

    (bundle,) = (tmp_path / "runs").iterdir()
    run = json.loads((bundle / "run.json").read_text())
    used = next(metric for metric in run["metrics"] if metric["name"] == "mem_used")
    assert run["simulated"] is True
    assert (used["value"], used["inputs"]["device_id"]) == (moving.peak_bytes, moving.device_id)
    assert moving.shown_ns[0] <= used["inputs"]["t_ns"] <= moving.shown_ns[1]
    assert used["inputs"]["per_device"] == {
        f"0/{simulation.cards[0].id}": moving.idle_bytes[0],
        f"0/{simulation.cards[1].id}": moving.peak_bytes,
    }

    memory = f"{moving.peak_bytes / 2**30:.1f}/{simulation.cards[1].memory_bytes / 2**30:.1f}"
    assert f"{memory} GiB" in table and f"peak on {moving.device_id}, read by xpu-smi" in table
    page = flagperf(simulation, tmp_path, "report", bundle.name, "--format", "md", "--allow-simulated")
    when = f"{used['inputs']['peak_seconds']:.1f} s after training began"
    assert f"| {memory} |" in page and f"peak on device {moving.device_id} {when}" in page
    assert "kunlun (simulated)" in table and "kunlun (simulated) P800-OAM" in page
