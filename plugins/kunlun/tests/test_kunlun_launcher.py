from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kunlun_builders import ADDRESSES, lay_out_r300

from flagperf.api import Device, LaunchCommand, NodeShare
from flagperf.plan.tuning import find_tuning
from flagperf.testing import Simulation
from flagperf_kunlun.device import KunlunBackend
from flagperf_kunlun.launcher import KunlunLauncher

DEVICES = tuple(
    Device(address, "R300", "R300", index + 2, pci_address=address) for index, address in enumerate(ADDRESSES)
)


def command() -> LaunchCommand:
    share = NodeShare(0, 1, DEVICES, "127.0.0.1", 29500, allowed_cores=8, host_workers=2)
    return KunlunLauncher().command(share, "python3", "flagperf.worker")


def test_both_visibility_variables_name_the_cards_of_the_run() -> None:
    environment = command().environment({"XPU_VISIBLE_DEVICES": "7", "CUDA_VISIBLE_DEVICES": "6"})
    assert (environment["XPU_VISIBLE_DEVICES"], environment["CUDA_VISIBLE_DEVICES"]) == ("2,3", "2,3")


@pytest.mark.parametrize("name", ["XTORCHRUN_CLEAN", "CUDA_LAUNCH_BLOCKING"])
def test_what_kills_other_processes_or_makes_kernels_wait_never_reaches_workers(name: str) -> None:
    assert name not in command().environment({name: "1"})


def test_cards_have_one_order_whatever_their_number_unless_the_user_chose_another() -> None:
    setting = next(each for each in command().settings if each.name == "CUDA_DEVICE_ORDER")
    assert "OAM_ID" in setting.reason
    assert command().environment({})["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert command().environment({"CUDA_DEVICE_ORDER": "OAM_ID"})["CUDA_DEVICE_ORDER"] == "OAM_ID"


def test_containers_get_every_card_that_a_node_has_and_its_tool_by_either_name() -> None:
    needs = KunlunLauncher().container_needs()
    assert needs.devices == ("/dev/xpuctrl", "/dev/xpu[0-9]*")
    assert (needs.mounts, needs.security_options) == (("/usr/local/bin/xpu[-_]smi",), ("seccomp=unconfined",))


def test_plan_shows_tuning_visibility_order_and_what_is_removed(tmp_path: Path) -> None:
    shown = plan(lay_out_r300(tmp_path / "machine"), tmp_path)
    tuned = ("training.accumulate 8", "data.num_workers 1", "training/kunlunxin/distilbert-pytorch for 1x1")
    launched = (
        "XPU_VISIBLE_DEVICES=0",
        "CUDA_VISIBLE_DEVICES=0",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "unset XTORCHRUN_CLEAN",
    )
    for words in (*tuned, *launched):
        assert words in shown, f"{words} is not in the plan:\n{shown}"


def plan(simulation: Simulation, folder: Path) -> str:
    """Of the published profile, with data that the case makes itself; in single spaces."""
    made_up = ("data.source=synthetic", "data.rows=64", "data.eval_rows=8", "model.checkpoint=false")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "flagperf",
            "plan",
            "distilbert",
            "--vendor",
            "kunlunxin",
            "--profile",
            "standard",
            "--data-dir",
            str(folder),
            "--set",
            *made_up,
        ],
        env=simulation.environ(),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("nodes", "devices", "training"),
    [(1, 1, {"batch_size": 32, "accumulate": 8}), (1, 8, {"batch_size": 32}), (2, 8, {"batch_size": 16})],
)
def test_tuning_is_that_of_the_published_rows(nodes: int, devices: int, training: dict[str, int]) -> None:
    found = find_tuning(KunlunBackend().tuning_folder(), "distilbert", "R300", nodes, devices, "standard")
    assert found is not None
    assert found.values == {"training": training, "data": {"num_workers": 1}}


def test_no_other_card_and_shape_is_tuned() -> None:
    folder = KunlunBackend().tuning_folder()
    assert find_tuning(folder, "distilbert", "P800-OAM", 1, 8, "standard") is None
    assert find_tuning(folder, "distilbert", "R300", 1, 4, "standard") is None
