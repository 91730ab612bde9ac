"""What pip makes of flagperf and its adapters: they install from wheels alone, and leave a vendor's torch as it is."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from wheel_builders import (
    ADAPTERS,
    build_wheels,
    install,
    make_environment,
    pretend_installed,
    would_install,
    write_wheel,
)

LIGHT = ("ClusterShell", "click", "msgspec", "packaging", "pluggy", "psutil", "rich")
VENDOR_TORCHES = ("1.13.1+git7d2dd01.abi0.dtk2310", "2.1.0+metax2.29")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheels(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What cases need, as the registry has it: newer releases of accelerate ask for torch 2."""
    folder = tmp_path_factory.mktemp("index")
    write_wheel(folder, "accelerate", "0.34.2", "torch>=1.10.0", "numpy")
    write_wheel(folder, "accelerate", "1.15.0", "torch>=2.0.0", "numpy")
    write_wheel(folder, "numpy", "1.26.4")
    write_wheel(folder, "transformers", "4.44.0", "numpy")
    write_wheel(folder, "transformers", "5.22.2", "numpy")
    write_wheel(folder, "peft", "0.13.2", "torch>=1.13.0", "transformers", "accelerate")
    write_wheel(folder, "sentencepiece", "0.2.2")
    write_wheel(folder, "torch", "2.13.0")
    return folder


def test_there_is_a_wheel_of_each_adapter_and_of_flagperf(dist: Path) -> None:
    names = {path.name.split("-")[0] for path in dist.glob("*.whl")}
    assert names == {"flagperf", *(f"flagperf_{adapter}" for adapter in ADAPTERS)}
    assert set(ADAPTERS) >= {"hygon", "kunlun", "metax", "nvidia"}


def test_every_wheel_holds_its_licence_and_says_that_its_packages_are_typed(dist: Path) -> None:
    for wheel in dist.glob("*.whl"):
        names = set(zipfile.ZipFile(wheel).namelist())
        packages = {name.split("/")[0] for name in names if "dist-info" not in name}
        assert {f"{package}/py.typed" for package in packages} <= names, wheel.name
        assert any(name.endswith("/LICENSE") for name in names), wheel.name


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_installs_from_the_wheels_alone_and_is_found(adapter: str, dist: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", *LIGHT, *(["nvidia-ml-py"] if adapter == "nvidia" else []))
    install(python, dist, f"flagperf-{adapter}")
    (tmp_path / "machine").mkdir()  # without a card, whatever the one under us has
    done = subprocess.run(
        [python.parent / "flagperf", "vendors", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FLAGPERF_SIMULATE": "1", "FLAGPERF_SIMULATE_ROOT": str(tmp_path / "machine")},
    )
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith(adapter))
    assert "absent" in line and "looked for" in line


@pytest.mark.parametrize("torch", VENDOR_TORCHES)
def test_no_adapter_and_no_case_asks_for_another_torch(torch: str, dist: Path, index: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", *LIGHT, "nvidia-ml-py")
    pretend_installed(python, "torch", torch)
    for adapter in ADAPTERS:
        assert "torch" not in would_install(python, [dist, index], f"flagperf-{adapter}")
    install(python, dist, "flagperf")
    constraint = tmp_path / "torch.txt"
    constraint.write_bytes(
        subprocess.run(
            [python.parent / "flagperf", "env", "--torch-constraint"], capture_output=True, check=True
        ).stdout
    )
    assert constraint.read_text() == f"torch=={torch}\n"
    installed = would_install(python, [dist, index], "flagperf[run]", "-c", str(constraint))
    assert "torch" not in installed
    assert installed["accelerate"] == ("1.15.0" if torch.startswith("2") else "0.34.2")
