"""How workers start: what they inherit, and the tuning of published rows."""

from __future__ import annotations

import pytest
from kunlun_outputs import ADDRESSES

from flagperf.api import ContainerNeeds, Device, NodeShare
from flagperf.plan.settings import find_tuning
from flagperf_kunlun.device import KunlunBackend
from flagperf_kunlun.launcher import KunlunLauncher

CARDS = tuple(Device(each, "R300", "R300", index, pci_address=each) for index, each in enumerate(ADDRESSES, 2))


def test_workers_see_the_cards_in_one_order_and_inherit_nothing_that_kills_or_waits() -> None:
    share = NodeShare(0, 1, CARDS, "127.0.0.1", 29500, allowed_cores=8, host_workers=2)
    command = KunlunLauncher().command(share, "python3", "flagperf.worker")
    removed = ("XTORCHRUN_CLEAN", "CUDA_LAUNCH_BLOCKING")
    environment = command.environment(dict.fromkeys((*removed, "XPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), "7"))
    assert not environment.keys() & set(removed)
    assert (environment["XPU_VISIBLE_DEVICES"], environment["CUDA_VISIBLE_DEVICES"]) == ("2,3", "2,3")
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert command.environment({"CUDA_DEVICE_ORDER": "OAM_ID"})["CUDA_DEVICE_ORDER"] == "OAM_ID"


def test_containers_get_every_card_that_a_node_has_and_its_tool_by_either_name() -> None:
    assert KunlunLauncher().container_needs() == ContainerNeeds(
        devices=("/dev/xpuctrl", "/dev/xpu[0-9]*"), mounts=("/usr/local/bin/xpu[-_]smi",),
        security_options=("seccomp=unconfined",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "shape", "training"),
    [
        ("R300", (1, 1), {"batch_size": 32, "accumulate": 8}),
        ("R300", (1, 8), {"batch_size": 32}),
        ("R300", (2, 8), {"batch_size": 16}),
        ("R300", (1, 4), None),
        ("P800-OAM", (1, 8), None),
    ],
)
def test_tuning_is_that_of_the_published_rows(
    model: str, shape: tuple[int, int], training: dict[str, int] | None
) -> None:
    found = find_tuning(KunlunBackend().tuning_folder(), "distilbert", model, *shape, "standard")
    expected = training and {"training": training, "data": {"num_workers": 1}}
    assert (found.values if found else None) == expected
