"""A library that an outside plugin gives takes turns with torch, and each of its rows has a verdict of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SITE = Path(__file__).parent / "site"

pytestmark = pytest.mark.run


def flagperf(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flagperf", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SITE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def settings(**values: Any) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"operators.{key}={json.dumps(value)}")]


def test_right_wrong_failing_and_missing_replacements(tmp_path: Path) -> None:
    operators = ["relu", "abs", "exp", "swiglu", "mean"]
    chosen = settings(only=operators, dtypes=["fp32"], directions=["forward"], libraries=["eager", "swift"])
    run = flagperf(tmp_path, "run", "operators", "--vendor", "cpu", *chosen)
    assert run.returncode == 0, run.stderr
    (bundle,) = (tmp_path / "runs").iterdir()
    recorded = json.loads((bundle / "run.json").read_text())
    assert recorded["job"]["operator_libraries"] == {"swift": "flagperf-swift 1.0"}
    rows = {(row["labels"]["operator"], row["labels"]["library"]): row for row in recorded["rows"]}
    assert {name: rows[name, "eager"].get("status", "ok") for name in operators} == dict.fromkeys(operators, "ok")
    found = {
        name: (rows[name, "swift"].get("status", "ok"), rows[name, "swift"].get("problem", "")) for name in operators
    }
    assert found["relu"] == found["swiglu"] == ("ok", "")
    assert found["abs"][0] == "invalid" and "elements differ too much" in found["abs"][1]
    assert found["exp"] == ("error", "ValueError: the library's own words")
    assert found["mean"] == ("unsupported", "swift replaces nothing that mean calls (mean)")
    assert rows["relu", "swift"]["facts"]["version"] == "flagperf-swift 1.0"
    # Joined by everything but the library, for speed-ups.
    relu, other = (dict(rows["relu", library]["labels"]) for library in ("eager", "swift"))
    assert (relu.pop("library"), other.pop("library")) == ("eager", "swift") and relu == other


def test_an_unknown_library_is_refused_with_the_near_ones(tmp_path: Path) -> None:
    run = flagperf(tmp_path, "run", "operators", "--vendor", "cpu", *settings(libraries=["eager", "swft"]))
    assert run.returncode == 2
    assert "unknown operator library 'swft'; did you mean swift?" in run.stderr
    assert not (tmp_path / "runs").exists()
