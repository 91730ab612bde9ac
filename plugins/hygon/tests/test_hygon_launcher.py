from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hygon_builders import ADDRESSES, lay_out

from flagperf.api import Device, LaunchCommand, NodeShare
from flagperf.testing import MachineFolder, Simulation
from flagperf_hygon.launcher import HygonLauncher

DEVICES = tuple(
    Device(address, "K100_AI", "K100_AI", index + 2, pci_address=address) for index, address in enumerate(ADDRESSES)
)


def command() -> LaunchCommand:
    share = NodeShare(0, 1, DEVICES, "127.0.0.1", 29500, allowed_cores=8, host_workers=2)
    return HygonLauncher().command(share, "python3", "flagperf.worker")


def test_workers_see_the_cards_of_the_run_by_hips_variable_alone() -> None:
    inherited = {"HIP_VISIBLE_DEVICES": "7", "CUDA_VISIBLE_DEVICES": "7", "ROCR_VISIBLE_DEVICES": "7", "HOME": "/root"}
    environment = command().environment(inherited)
    assert {name: value for name, value in environment.items() if name.endswith("VISIBLE_DEVICES")} == {
        "HIP_VISIBLE_DEVICES": "2,3"
    }
    assert environment["HOME"] == "/root"


def test_dtks_script_is_sourced_where_it_is(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path)
    assert HygonLauncher().env_script(folder.machine()) is None
    folder.file("/opt/dtk/env.sh", "export DTK=1\n")
    assert HygonLauncher().env_script(folder.machine()) == str(tmp_path / "opt/dtk/env.sh")


def test_plan_shows_script_visibility_what_is_removed_and_the_peak(tmp_path: Path) -> None:
    shown = plan(lay_out(tmp_path / "machine"), tmp_path)
    script = tmp_path / "machine/root/opt/dtk/env.sh"
    for words in (
        f". {script}",
        "HIP_VISIBLE_DEVICES=0,1",
        "unset ROCR_VISIBLE_DEVICES",
        "4.9e+13 FLOP/s",
        "low; MFU does not use it",
    ):
        assert words in shown, shown


def test_plan_of_a_slice_has_no_peak(tmp_path: Path) -> None:
    shown = plan(lay_out(tmp_path / "machine"), tmp_path, VHCU_VISIBLE_DEVICES="0,1")
    assert "4.9e+13" not in shown and "secondary survey" not in shown, shown


def plan(simulation: Simulation, folder: Path, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", "plan", "distilbert", "--vendor", "hygon", "--devices", "2"],
        env=simulation.environ(**environ), capture_output=True, text=True, check=False, cwd=folder, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
