"""How workers start: which cards they see, what they inherit, and what `flagperf plan` says about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from nvidia_builders import PATIENCE_SECONDS, device, folder_with_cards, nvml_card, nvml_environ, nvml_text, uuid

from flagperf.api import ContainerNeeds, LaunchCommand, NodeShare
from flagperf.errors import Unsupported
from flagperf_nvidia.launcher import NvidiaLauncher


def command(num_devices: int = 2, num_nodes: int = 1, **fields: str) -> LaunchCommand:
    devices = tuple(device(index, **fields) for index in range(num_devices))
    share = NodeShare(0, num_nodes, devices, "127.0.0.1", 29500, allowed_cores=8, host_workers=num_devices)
    return NvidiaLauncher().command(share, "python3", "flagperf.worker")


def test_workers_see_the_cards_by_uuid_in_the_order_of_the_bus_and_nothing_that_slows_or_rounds() -> None:
    removed = ("CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    inherited = {**dict.fromkeys((*removed, "CUDA_VISIBLE_DEVICES"), "7"), "NCCL_SOCKET_IFNAME": "ib0"}
    environment = command().environment(inherited)
    assert not set(removed) & set(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == f"{uuid(0)},{uuid(1)}"
    assert (environment["CUDA_DEVICE_ORDER"], environment["NCCL_SOCKET_IFNAME"]) == ("PCI_BUS_ID", "ib0")


def test_a_card_without_a_uuid_is_named_by_its_index_and_a_slice_by_its_own() -> None:
    assert command(uuid="").environment({})["CUDA_VISIBLE_DEVICES"] == "0,1"
    environment = command(1, uuid="MIG-0a1b", slice="MIG 1g.5gb").environment({})
    assert environment["CUDA_VISIBLE_DEVICES"] == "MIG-0a1b"


@pytest.mark.parametrize(("num_devices", "num_nodes"), [(2, 1), (1, 2)])
def test_several_workers_on_slices_are_unsupported(num_devices: int, num_nodes: int) -> None:
    with pytest.raises(Unsupported, match="--devices 1"):
        command(num_devices, num_nodes, slice="MIG 1g.5gb")


def test_collectives_that_lost_a_rank_end_unless_the_user_says_otherwise() -> None:
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    assert command().environment({})[name] == "1"
    assert command().environment({name: "3"})[name] == "3"
    assert name not in command(1).environment({})


def test_containers_get_all_cards_with_the_drivers_libraries() -> None:
    needs = NvidiaLauncher().container_needs()
    assert needs == ContainerNeeds(devices=("nvidia.com/gpu=all",), apptainer_options=("--nv",))


def test_plan_shows_tuning_visibility_settings_and_what_is_removed(tmp_path: Path) -> None:
    folder_with_cards(tmp_path, 1)
    synthetic = ("data.source=synthetic", "data.rows=64", "data.eval_rows=8", "model.checkpoint=false")
    plan = ("plan", "distilbert", "--profile", "standard", "--data-dir", str(tmp_path), "--set", *synthetic)
    done = subprocess.run(
        [sys.executable, "-m", "flagperf", *plan],
        env=nvml_environ(tmp_path, nvml_text([nvml_card(0)]), CUDA_LAUNCH_BLOCKING="1"),
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    tuned = ("96", "0.00015", "published A100 row 1x1")
    for words in (*tuned, "CUDA_VISIBLE_DEVICES", uuid(0), "PCI_BUS_ID", "CUDA_LAUNCH_BLOCKING"):
        assert words in shown, f"{words} is not in the plan:\n{done.stdout}"
