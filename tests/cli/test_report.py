from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagperf.bundle.bundle import create_bundle
from flagperf.cli import run_cli
from run_builders import make_run


def test_a_run_that_is_named_twice_is_printed_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one, other = (make_run(f"2026010{day}T000000Z-demo-cpu-1x1-abc123") for day in (1, 2))
    path = create_bundle(tmp_path, one, ())
    create_bundle(tmp_path, other, ())
    named = [one.id, other.id, str(path), "20260101"]
    assert run_cli(["report", *named, "--runs-dir", str(tmp_path), "--format", "json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    assert [run["id"] for run in printed["runs"]] == [one.id, other.id]
