"""What `make dist` builds: it installs from wheels alone, leaves a vendor's torch as it is, and is always the same."""

from __future__ import annotations

import email
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from wheel_builders import (
    ADAPTERS,
    ROOT,
    install,
    make_dist,
    make_environment,
    pretend_installed,
    would_install,
    write_wheel,
)

LIGHT = ("ClusterShell", "click", "msgspec", "packaging", "pluggy", "psutil", "pytest", "rich", "tomli")
VENDOR_TORCHES = ("1.13.1+git7d2dd01.abi0.dtk2310", "2.1.0+metax2.29")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dist(tmp_path_factory.mktemp("sources"))


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


def test_there_are_a_wheel_and_an_sdist_of_each_adapter_and_of_flagperf_with_one_version(dist: Path) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    names = ["flagperf", *(f"flagperf_{adapter}" for adapter in ADAPTERS)]
    endings = ("-py3-none-any.whl", ".tar.gz")
    assert {path.name for path in dist.iterdir()} == {f"{name}-{version}{end}" for name in names for end in endings}
    assert set(ADAPTERS) >= {"hygon", "kunlun", "metax", "nvidia"}


def test_building_again_elsewhere_gives_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = make_dist(tmp_path / "another" / "place")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in dist.iterdir()
    }


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_asks_for_this_flagperf_and_not_for_the_next(adapter: str, dist: Path) -> None:
    (wheel,) = dist.glob(f"flagperf_{adapter}-*.whl")
    (needed,) = [each for each in requirements(wheel) if each.name == "flagperf" and each.marker is None]
    major, minor, patch = map(int, (ROOT / "VERSION").read_text().split("."))
    assert needed.specifier.contains(f"{major}.{minor}.{patch}")
    assert needed.specifier.contains(f"{major}.{minor}.{patch + 1}")
    assert not needed.specifier.contains(f"{major}.{minor + 1}")


def requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as content:
        (name,) = [name for name in content.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(content.read(name))
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_sdist_of_an_adapter_has_its_tests_and_flagperfs_has_its_documents(adapter: str, dist: Path) -> None:
    assert f"tests/test_{adapter}_smi.py" in files_of_sdist(dist, f"flagperf_{adapter}")
    flagperf = files_of_sdist(dist, "flagperf")
    assert {"README.md", "docs/cli.md", "VERSION"} <= flagperf
    assert not any(name.startswith(("tests/", "plugins/")) for name in flagperf)


def files_of_sdist(dist: Path, name: str) -> set[str]:
    (path,) = dist.glob(f"{name}-*.tar.gz")
    with tarfile.open(path) as archive:
        return {member.partition("/")[2] for member in archive.getnames()}


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


def test_an_adapter_that_was_installed_from_the_wheels_passes_its_check(dist: Path, tmp_path: Path) -> None:
    """As docs/install.md says, in an environment without torch: somebody who never saw this repository."""
    python = make_environment(tmp_path / "env", *LIGHT)
    install(python, dist, "flagperf-metax")
    command = [python.parent / "flagperf", "vendors", "check", "metax"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "metax: offline: pass" in done.stdout


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
