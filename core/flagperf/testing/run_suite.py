"""A whole run of a case on simulated cards, from the command line to the page.

The second of two cards fills up in the middle of the run. That peak, that card and that time must stand in the bundle,
in the table and on the page, and every one of them must say that the cards are simulated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from flagperf.kit import module_command
from flagperf.testing.memory_suite import MovingMemory
from flagperf.testing.process import said_last
from flagperf.testing.simulated_cards import torch_can_have_devices
from flagperf.testing.suite import Simulation, Suite, skip_without_torch
from flagperf.units import memory_cell, one_decimal

RUN_SECONDS = 300
"""A run that takes longer is stopped by its own --timeout, with all its processes."""
WORKER_BYTES = 1 << 30


class RunSuite(Suite):
    """A whole run on two simulated cards, from the command line to the page. It takes about half a minute."""

    case: ClassVar[tuple[str, ...]] = (
        "distilbert", "--set", "training.epochs=1", "--set", "training.warmup_steps=3",
        "--set", "evaluation.max_rows=100",
    )  # fmt: skip
    """The case and its settings. Steps of the warm-up are written when it ends, and enough must remain after that."""

    @pytest.mark.run
    def test_the_peak_stands_with_its_card_and_time_in_bundle_table_and_page(
        self, simulation: Simulation, tmp_path: Path
    ) -> None:
        skip_without_torch(simulation.environ(), tmp_path)
        run = ("run", *self.case, "--vendor", self.rig.vendor, "--devices", "2", "--timeout", str(RUN_SECONDS))
        with MovingMemory(simulation, tmp_path / "runs", card=1) as moving:
            table = _flagperf(simulation, tmp_path, *run)
        assert moving.shown_ns is not None, moving.problem
        used = self._check_bundle(tmp_path, simulation, moving)
        memory = memory_cell(used["value"], simulation.cards[1].memory_bytes)
        name = f"{self.rig.vendor} (simulated)"
        peak = f"{moving.device_id} {one_decimal(used['inputs']['peak_seconds'])} s after training began"
        assert memory in table and peak in table and name in table
        page = _flagperf(simulation, tmp_path, "report", "latest", "--format", "md", "--allow-simulated")
        assert memory in page and peak in page and name in page
        exported = _flagperf(simulation, tmp_path, "report", "latest", "--format", "json")
        assert name in exported
        refused = _run(simulation, tmp_path, "report", "latest", "--format", "md")
        assert refused.returncode == 2 and "--allow-simulated" in refused.stderr
        _flagperf(simulation, tmp_path, "runs", "verify", "latest")

    def _check_bundle(self, folder: Path, simulation: Simulation, moving: MovingMemory) -> Any:
        (bundle,) = (folder / "runs").iterdir()
        run = json.loads((bundle / "run.json").read_text())
        metrics = {metric["name"]: metric for metric in run["metrics"]}
        used: Any = metrics["mem_used"]
        assert run["simulated"] is True
        if run["job"]["has_allocator"] and torch_can_have_devices():
            assert metrics["mem_allocator"]["value"] > 0
            assert metrics["mem_remainder"].get("value") is not None, metrics["mem_remainder"]
        # The workers compute on these cards too: what they use comes on top, and is no more than a small model needs.
        assert used["inputs"]["device_id"] == moving.device_id
        assert 0 <= used["value"] - moving.peak_bytes < WORKER_BYTES
        assert moving.shown_ns and moving.shown_ns[0] <= used["inputs"]["t_ns"] <= moving.shown_ns[1]
        others = [value for name, value in used["inputs"]["per_device"].items() if moving.device_id not in name]
        assert len(others) == 1 and 0 <= others[0] - moving.idle_bytes[0] < WORKER_BYTES
        return used


def _flagperf(simulation: Simulation, folder: Path, *arguments: str) -> str:
    done = _run(simulation, folder, *arguments)
    errors = [line for line in done.stderr.splitlines() if line.startswith("flagperf: ")]  # notes may follow them
    cause = errors[-1] if errors else said_last(done.stderr)
    assert done.returncode == 0, f"flagperf {arguments[0]}: {cause}\n{done.stdout}{done.stderr}"
    return done.stdout


def _run(simulation: Simulation, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*module_command(sys.executable, "flagperf"), *arguments, "--runs-dir", str(folder / "runs")],
        env=simulation.environ(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * RUN_SECONDS,
    )
