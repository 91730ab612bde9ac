"""How workers start: what they inherit, and DTK's script."""

from __future__ import annotations

from pathlib import Path

import pytest
from hygon_builders import ADDRESSES

from flagperf.api import ContainerNeeds, Device, NodeShare
from flagperf.errors import BadInput
from flagperf.testing import MachineFolder
from flagperf_hygon.device import HygonBackend
from flagperf_hygon.launcher import HygonLauncher

LAUNCHER = HygonLauncher()


def test_workers_see_the_cards_by_hips_variable_alone_and_nothing_that_slows_or_rounds() -> None:
    cards = tuple(
        Device(each, "K100_AI", "K100_AI", index, pci_address=each) for index, each in enumerate(ADDRESSES, 2)
    )
    share = NodeShare(0, 1, cards, "127.0.0.1", 29500, allowed_cores=8, host_workers=2)
    removed = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL",
               "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")  # fmt: skip
    inherited = dict.fromkeys((*removed, "HIP_VISIBLE_DEVICES", "HOME"), "7")
    environment = LAUNCHER.command(share, "python3", "flagperf.worker").environment(inherited)
    assert not environment.keys() & set(removed)
    assert (environment["HIP_VISIBLE_DEVICES"], environment["HOME"]) == ("2,3", "7")


def test_containers_get_the_hosts_hyhal_and_the_node_that_only_newer_drivers_have() -> None:
    assert LAUNCHER.container_needs() == ContainerNeeds(
        devices=("/dev/kfd", "/dev/mkfd*", "/dev/dri"), groups=("video",), mounts=("/opt/hyhal",),
        security_options=("seccomp=unconfined",),
    )  # fmt: skip


def test_dtks_script_is_sourced_where_it_is_and_of_several_none_is_guessed(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path)
    assert LAUNCHER.env_script(folder.machine()) is None
    scripts = [f"{tmp_path}/opt/dtk{release}/env.sh" for release in ("-25.04", "-26.04", "")]
    folder.file("/opt/dtk-25.04/env.sh").file("/opt/dtk-25.04/.dtk_version", "DTK-25.04\n")
    assert LAUNCHER.env_script(folder.machine()) == scripts[0]
    folder.file("/opt/dtk-26.04/env.sh")
    with pytest.raises(BadInput, match=r"FLAGPERF_HYGON_ENV_SCRIPT to one of .*25.04.*26.04"):
        LAUNCHER.env_script(folder.machine())
    named = folder.machine({"FLAGPERF_HYGON_ENV_SCRIPT": scripts[0], "PATH": ""})
    assert (LAUNCHER.env_script(named), HygonBackend().versions(named)) == (scripts[0], {"dtk": "25.04"})
    folder.file("/opt/dtk/env.sh")
    assert LAUNCHER.env_script(folder.machine()) == scripts[2]
    with pytest.raises(BadInput, match="is not a file"):
        LAUNCHER.env_script(folder.machine({"FLAGPERF_HYGON_ENV_SCRIPT": str(tmp_path / "none.sh")}))
