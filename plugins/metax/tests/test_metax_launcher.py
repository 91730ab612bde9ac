"""How workers start: which cards they see, and what `flagperf plan` says about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from metax_builders import card, slice_device

from flagperf.api import Device, LaunchCommand, NodeShare
from flagperf.testing import MachineFolder
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


@pytest.mark.parametrize("devices", [(card(0),), (card(0), card(1))])
def test_one_worker_per_card(devices: tuple[Device, ...]) -> None:
    assert f"--nproc-per-node={len(devices)}" in command(*devices).argv


def test_no_script_is_needed_before_torch(tmp_path: Path) -> None:
    assert MetaxLauncher().env_script(MachineFolder(tmp_path).machine()) is None
