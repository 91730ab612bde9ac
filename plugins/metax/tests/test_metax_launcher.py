"""How workers start: which cards they see, what they inherit, and what `flagperf plan` says about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from metax_builders import SLICED_ANSWERS, card, lay_out, slice_device
from metax_outputs import FIRST_UUID, SLICE_UUID

from flagperf.api import ContainerNeeds, Device, LaunchCommand, NodeShare
from flagperf.testing import MachineFolder, write_tool
from flagperf_metax.launcher import MetaxLauncher

BOTH = ("CUDA_VISIBLE_DEVICES", "MACA_VISIBLE_DEVICES")


def command(*devices: Device) -> LaunchCommand:
    share = NodeShare(0, 1, devices, "127.0.0.1", 29500, allowed_cores=8, host_workers=len(devices))
    return MetaxLauncher().command(share, "python", "worker")


def test_workers_see_the_cards_by_two_equal_variables_and_nothing_that_slows_or_rounds() -> None:
    removed = ("CUDA_LAUNCH_BLOCKING", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    inherited = {**dict.fromkeys(removed, "1"), BOTH[0]: "7", BOTH[1]: "5", "HOME": "/root"}
    environment = command(card(1), card(0)).environment(inherited)
    assert not environment.keys() & set(removed)
    assert ({environment[name] for name in BOTH}, environment["HOME"]) == ({"1,0"}, "/root")


def test_a_slice_keeps_the_visibility_that_it_inherits() -> None:
    assert not set(BOTH) & set(command(slice_device()).environment({}))
    assert command(slice_device()).environment({BOTH[0]: "0", BOTH[1]: "0"})[BOTH[0]] == "0"


def test_a_toolkit_that_the_user_names_stays_and_no_script_is_needed_before_torch(tmp_path: Path) -> None:
    assert command(card()).environment({})["MACA_PATH"] == "/opt/maca"
    assert command(card()).environment({"MACA_PATH": "/opt/maca-3.2"})["MACA_PATH"] == "/opt/maca-3.2"
    assert MetaxLauncher().env_script(MachineFolder(tmp_path).machine()) is None


def test_containers_get_the_cards_as_the_vendor_maps_them() -> None:
    assert MetaxLauncher().container_needs() == ContainerNeeds(
        devices=("/dev/mxcd", "/dev/dri"), groups=("video",),
        security_options=("seccomp=unconfined", "apparmor=unconfined"),
    )  # fmt: skip


WHOLE_CARD = ("3.6e+13", "training.batch_size 96", "training.learning_rate 1e-5", "distilbert-pytorch for 1x1",
              "CUDA_VISIBLE_DEVICES=0", "MACA_VISIBLE_DEVICES=0")  # fmt: skip
SETTINGS = ("MACA_PATH=/opt/maca", "unset CUDA_LAUNCH_BLOCKING")


@pytest.mark.parametrize("is_slice", [False, True])
def test_plan_shows_what_a_card_gets_and_a_slice_has_nothing_of_the_whole_one(is_slice: bool, tmp_path: Path) -> None:
    simulation = lay_out(tmp_path / "machine")
    if is_slice:
        write_tool(simulation.root / "bin", "mx-smi", SLICED_ANSWERS, simulation.memory)
    synthetic = ("data.source=synthetic", "data.rows=64", "data.eval_rows=8", "model.checkpoint=false")
    plan = ("plan", "distilbert", "--vendor", "metax", "--profile", "standard", "--data-dir", str(simulation.root))
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", *plan, "--set", *synthetic],
        env=simulation.environ(CUDA_LAUNCH_BLOCKING="1"), cwd=simulation.root,
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert not [words for words in (SLICE_UUID if is_slice else FIRST_UUID, *SETTINGS) if words not in shown], shown
    assert [words in shown for words in WHOLE_CARD] == [not is_slice] * len(WHOLE_CARD), shown
