"""Adapters that were shipped with an earlier flagperf keep working.

tests/shipped/flagperf-lumen is what `flagperf vendors new` wrote at HOOK_API 1. It is never edited.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plugin_harness import FlagPerf, install_dummies

from flagperf import hookspecs
from flagperf.kit import module_command

LUMEN = Path(__file__).parents[1] / "shipped" / "flagperf-lumen"

LUMEN_SHA256 = "5eda6e2b843848471b2b4b57cd36827aefaca1869c36d5c10faff6c858dfb1bb"

pytestmark = pytest.mark.run


def test_it_is_as_it_was_shipped() -> None:
    files = sorted(path for path in LUMEN.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    content = [path.relative_to(LUMEN).as_posix().encode() + b"\0" + path.read_bytes() for path in files]
    assert hashlib.sha256(b"".join(content)).hexdigest() == LUMEN_SHA256


@pytest.fixture(scope="module")
def lumen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the adapter, and beside it its tests."""
    folder = tmp_path_factory.mktemp("shipped")
    shutil.copytree(LUMEN, folder / "package")
    return install_dummies(folder / "site", folder / "package")


def python(site: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FLAGPERF_", "PYTEST_"))}
    return subprocess.run(
        [*module_command(sys.executable, module), *arguments],
        cwd=site.parent,
        env={**inherited, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_it_was_written_for_an_earlier_contract_and_is_listed_without_a_problem(lumen: Path, tmp_path: Path) -> None:
    declared = (LUMEN / "src" / "flagperf_lumen" / "__init__.py").read_text()
    assert "FLAGPERF_HOOK_API = 1\n" in declared and hookspecs.MIN_HOOK_API <= 1 < hookspecs.HOOK_API
    listed = FlagPerf([lumen], tmp_path)("vendors", "list", "--json").json
    assert [plugin["problem"] for plugin in listed["plugins"] if plugin["name"] == "lumen"] == [""]
    assert "lumen" in [vendor["vendor"] for vendor in listed["vendors"]]


def test_it_passes_the_suites_that_it_was_shipped_with(lumen: Path) -> None:
    tests = str(lumen.parent / "package" / "tests")
    done = python(lumen, "pytest", "-q", "-p", "no:cacheprovider", "-m", "not run", "-rs", tests)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "skipped" not in done.stdout, done.stdout


def test_a_run_on_its_simulated_cards_verifies(lumen: Path) -> None:
    rig = f"{lumen.parent / 'package' / 'tests' / 'test_lumen_conformance.py'}:LumenRig"
    simulate, runs = "flagperf.testing.simulate", str(lumen.parent / "runs")
    steps = ("--set", "training.max_steps=4", "--set", "training.warmup_steps=1")
    ran = python(lumen, simulate, rig, "run", "distilbert", "--vendor", "lumen", "--runs-dir", runs, *steps)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    assert "lumen (simulated)" in ran.stdout
    verified = python(lumen, "flagperf", "runs", "verify", "latest", "--runs-dir", runs)
    assert verified.returncode == 0, f"{verified.stdout}\n{verified.stderr}"
