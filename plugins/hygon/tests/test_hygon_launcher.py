from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hygon_builders import ADDRESSES, lay_out

from flagperf.api import Device, LaunchCommand, NodeShare
from flagperf.errors import BadInput
from flagperf.testing import MachineFolder, Simulation
from flagperf_hygon.device import HygonBackend
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


def test_variables_that_change_what_is_measured_never_reach_workers() -> None:
    slow = ("HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
    assert not command().environment(dict.fromkeys(slow, "1")).keys() & set(slow)


def test_containers_get_the_hosts_hyhal_and_the_node_that_only_newer_drivers_have() -> None:
    needs = HygonLauncher().container_needs()
    assert (needs.devices, needs.groups) == (("/dev/kfd", "/dev/mkfd*", "/dev/dri"), ("video",))
    assert (needs.mounts, needs.security_options) == (("/opt/hyhal",), ("seccomp=unconfined",))


def test_dtks_script_is_sourced_where_it_is(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path)
    assert HygonLauncher().env_script(folder.machine()) is None
    folder.file("/opt/dtk-26.04/env.sh", "export DTK=2\n")
    assert HygonLauncher().env_script(folder.machine()) == str(tmp_path / "opt/dtk-26.04/env.sh")
    folder.file("/opt/dtk/env.sh", "export DTK=1\n")
    assert HygonLauncher().env_script(folder.machine()) == str(tmp_path / "opt/dtk/env.sh")


def test_of_several_releases_none_is_guessed(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path)
    for release in ("25.04", "26.04"):
        folder.file(f"/opt/dtk-{release}/env.sh").file(f"/opt/dtk-{release}/.dtk_version", f"DTK-{release}\n")
    with pytest.raises(BadInput, match=r"FLAGPERF_HYGON_ENV_SCRIPT to one of .*25.04.*26.04"):
        HygonLauncher().env_script(folder.machine())
    chosen = str(tmp_path / "opt/dtk-25.04/env.sh")
    machine = folder.machine({"FLAGPERF_HYGON_ENV_SCRIPT": chosen, "PATH": ""})
    assert HygonLauncher().env_script(machine) == chosen
    assert HygonBackend().versions(machine) == {"dtk": "25.04"}


def test_a_script_that_is_named_and_not_there_is_bad_input(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path).file("/opt/dtk/env.sh")
    with pytest.raises(BadInput, match="is not a file"):
        HygonLauncher().env_script(folder.machine({"FLAGPERF_HYGON_ENV_SCRIPT": str(tmp_path / "none.sh")}))


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
    done = run_plan(simulation, folder, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_plan(simulation: Simulation, folder: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flagperf", "plan", "distilbert", "--vendor", "hygon", "--devices", "2", *options],
        env=simulation.environ(**environ),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=300,
    )


def test_a_precision_that_the_card_lacks_is_unsupported_before_anything_starts(tmp_path: Path) -> None:
    simulation = lay_out(tmp_path / "machine", pci_id="55b7")
    done = run_plan(simulation, tmp_path, "--precision", "tf32")
    assert done.returncode == 6
    assert "hygon Z100L does not support precision tf32" in done.stderr and "it has: fp32, fp16" in done.stderr
