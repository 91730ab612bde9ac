"""The four adapters, and what `flagperf vendors new` writes, are of one shape."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagperf.cli.vendors import write_adapter

PLUGINS = Path(__file__).parents[2] / "plugins"
VENDORS = ("nvidia", "metax", "hygon", "kunlun")
PACKAGE = ("__init__.py", "device.py", "launcher.py", "memory.py", "models.toml", "py.typed", "smi.py")
TESTS = ("conformance", "device", "launcher", "memory", "smi")
READ_BY_THE_ONE_WITH_A_CARD = ("Install", "Check", "First run", "When it fails")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    write_adapter("acme", tmp_path / "flagperf-acme")
    return tmp_path / "flagperf-acme"


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_adapter_has_the_same_files(vendor: str) -> None:
    folder = PLUGINS / vendor
    package = folder / "src" / f"flagperf_{vendor}"
    assert [name for name in PACKAGE if not (package / name).is_file()] == []
    assert [name for name in ("LICENSE", "README.md", "pyproject.toml") if not (folder / name).is_file()] == []
    assert {path.stem for path in (folder / "tests").glob("test_*.py")} == {f"test_{vendor}_{name}" for name in TESTS}
    assert list(package.glob("tuning/*.toml")) and list(folder.glob("tests/transcripts/*.txt"))


def test_a_new_adapter_has_the_files_of_a_package(new: Path) -> None:
    assert {path.name for path in (new / "src" / "flagperf_acme").iterdir()} == {*PACKAGE, "tuning"}
    assert (new / "tests" / "test_acme_conformance.py").is_file()


def test_a_new_adapter_has_about_150_lines_of_source(new: Path) -> None:
    lines = [line for path in (new / "src").rglob("*.*") for line in path.read_text().splitlines()]
    assert 100 < len(lines) <= 160


def test_a_new_adapter_in_a_checkout_is_tested_by_itself(new: Path) -> None:
    """As pytest finds what it goes by: not the settings and the conftest.py around the package."""
    (new.parent / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'\n")
    (new.parent / "conftest.py").write_text("import a_library_that_is_not_there")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    environ = {**os.environ, "PYTHONPATH": str(new / "src")}
    done = subprocess.run(command, cwd=new, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and "test_acme_conformance.py::" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_readme_leads_to_a_first_run_and_says_what_to_send_back(vendor: str) -> None:
    text = (PLUGINS / vendor / "README.md").read_text(encoding="utf-8")
    assert headings(text) == [*READ_BY_THE_ONE_WITH_A_CARD, "What it reads", "What it sets", "What is unknown"]
    commands = (
        f"pip install flagperf-{vendor}\n",
        f"vendors check {vendor} --hardware",
        "run distilbert",
        "env --json",
    )
    assert [command for command in commands if command not in text] == []
    assert "](../" not in text, "a link out of the package breaks when the adapter moves to its own repository"


def test_the_readme_of_a_new_adapter_begins_as_the_others(new: Path) -> None:
    assert headings((new / "README.md").read_text()) == [*READ_BY_THE_ONE_WITH_A_CARD, "What is unknown"]


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
