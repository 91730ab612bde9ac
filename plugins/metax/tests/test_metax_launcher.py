"""How workers start: which cards they see, and what `flagperf plan` says about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from metax_builders import FIRST_UUID, SLICE_UUID, SLICED_ANSWERS, card, lay_out, slice_device

from flagperf.api import Device, LaunchCommand, NodeShare
from flagperf.plan.settings import find_tuning
from flagperf.testing import MachineFolder, Simulation, write_tool
from flagperf_metax.device import MetaxBackend
from flagperf_metax.launcher import MetaxLauncher

BOTH = ("CUDA_VISIBLE_DEVICES", "MACA_VISIBLE_DEVICES")


def command(*devices: Device) -> LaunchCommand:
    share = NodeShare(0, 1, devices, "127.0.0.1", 29500, allowed_cores=8, host_workers=len(devices))
    return MetaxLauncher().command(share, "python", "worker")


def test_both_visibility_variables_are_equal_whatever_was_inherited() -> None:
    environment = command(card(1), card(0)).environment({"CUDA_VISIBLE_DEVICES": "7", "MACA_VISIBLE_DEVICES": "5"})
    assert {environment[name] for name in BOTH} == {"1,0"}


def test_device_and_launcher_speak_of_the_same_variables() -> None:
    assert MetaxLauncher.visibility_variables == MetaxBackend.visibility_variables == BOTH


def test_a_slice_keeps_the_visibility_that_it_inherits() -> None:
    assert not set(BOTH) & set(command(slice_device()).environment({}))
    assert command(slice_device()).environment({BOTH[0]: "0", BOTH[1]: "0"})[BOTH[0]] == "0"


def test_a_toolkit_that_the_user_names_stays() -> None:
    assert command(card()).environment({})["MACA_PATH"] == "/opt/maca"
    assert command(card()).environment({"MACA_PATH": "/opt/maca-3.2"})["MACA_PATH"] == "/opt/maca-3.2"


def test_every_setting_has_its_reason() -> None:
    assert all(setting.reason for setting in command(card()).settings)


def test_one_worker_per_card() -> None:
    assert "--nproc-per-node=2" in command(card(0), card(1)).argv
    assert command(card(0)).argv == ("python", "-m", "worker")


def test_variables_that_change_what_is_measured_do_not_reach_workers() -> None:
    inherited = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "HOME": "/root"}
    assert inherited.keys() & command(card()).environment(inherited).keys() == {"HOME"}


def test_containers_get_the_cards_as_the_vendor_maps_them() -> None:
    needs = MetaxLauncher().container_needs()
    assert (set(needs.devices), needs.groups) == ({"/dev/mxcd", "/dev/dri"}, ("video",))
    assert needs.security_options == ("seccomp=unconfined", "apparmor=unconfined")


def test_no_script_is_needed_before_torch(tmp_path: Path) -> None:
    assert MetaxLauncher().env_script(MachineFolder(tmp_path).machine()) is None


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ((1, 1), {"batch_size": 96, "learning_rate": 1e-5}),
        ((1, 8), {"batch_size": 96}),
        ((2, 8), {"batch_size": 96}),
    ],
)
def test_the_published_configurations_are_tuning_of_their_shape(shape: tuple[int, int], values: dict[str, Any]) -> None:
    tuning = find_tuning(MetaxBackend().tuning_folder(), "distilbert", "C500", *shape, "standard")
    assert tuning is not None
    assert tuning.values == {"training": values}


def test_what_was_published_of_c500_is_no_tuning_of_c550() -> None:
    assert find_tuning(MetaxBackend().tuning_folder(), "distilbert", "C550", 1, 8, "standard") is None


def plan(simulation: Simulation, **variables: str) -> str:
    synthetic = ("data.source=synthetic", "data.rows=64", "data.eval_rows=8", "model.checkpoint=false")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "flagperf",
            "plan",
            "distilbert",
            "--vendor",
            "metax",
            "--profile",
            "standard",
            "--data-dir",
            str(simulation.root),
            "--set",
            *synthetic,
        ],
        env=simulation.environ(**variables),
        cwd=simulation.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_plan_shows_tuning_peak_visibility_settings_and_what_is_removed(tmp_path: Path) -> None:
    shown = plan(lay_out(tmp_path / "machine"), CUDA_LAUNCH_BLOCKING="1")
    tuned = ("training.batch_size 96", "training.learning_rate 1e-5", "distilbert-pytorch for 1x1")
    settings = ("CUDA_VISIBLE_DEVICES=0", "MACA_VISIBLE_DEVICES=0", "MACA_PATH=/opt/maca", "unset CUDA_LAUNCH_BLOCKING")
    for words in (FIRST_UUID, "3.6e+13", *tuned, *settings):
        assert words in shown


def test_plan_has_neither_peak_nor_tuning_of_the_whole_card_for_a_slice(tmp_path: Path) -> None:
    simulation = lay_out(tmp_path / "machine")
    write_tool(simulation.root / "bin", "mx-smi", SLICED_ANSWERS, simulation.memory)
    shown = plan(simulation)
    assert SLICE_UUID in shown
    for words in ("3.6e+13", "training.batch_size 96", "CUDA_VISIBLE_DEVICES"):
        assert words not in shown
