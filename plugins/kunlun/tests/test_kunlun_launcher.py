from __future__ import annotations

from kunlun_builders import ADDRESSES

from flagperf.api import Device, LaunchCommand, NodeShare
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


def test_the_variable_that_kills_other_processes_never_reaches_workers() -> None:
    assert "XTORCHRUN_CLEAN" not in command().environment({"XTORCHRUN_CLEAN": "1"})


def test_cards_have_one_order_whatever_the_number_of_cards_and_what_was_inherited() -> None:
    setting = next(each for each in command().settings if each.name == "CUDA_DEVICE_ORDER")
    assert "OAM_ID" in setting.reason
    assert command().environment({"CUDA_DEVICE_ORDER": "OAM_ID"})["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
