"""A kind that core does not have is one module: it runs, reports in both languages and verifies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parent / "site"

pytestmark = pytest.mark.run


WITH_KIND = "import sys, flagperf_copying.kind; from flagperf.cli import main; sys.argv[0] = 'flagperf'; main()"
"""Kinds are core's own, so that runs are reported and verified where their case is not installed."""


def flagperf(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITH_KIND, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SITE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_it_runs_and_reports_and_a_row_that_was_changed_afterwards_is_found(tmp_path: Path) -> None:
    run = flagperf(tmp_path, "run", "copying", "--vendor", "cpu")
    assert run.returncode == 0, run.stderr
    assert "copy_rate" in run.stdout and "GB/s" in run.stdout
    assert "loss" not in run.stdout and "MFU" not in run.stdout

    (bundle,) = (tmp_path / "runs").iterdir()
    recorded = json.loads((bundle / "run.json").read_text())
    metrics = {metric["name"]: metric for metric in recorded["metrics"]}
    assert metrics["copy_rate"]["value"] > 0 and metrics["steps_kept"]["value"] == 25
    assert "p_core" not in metrics and "loss" not in metrics
    measured, missing = recorded["rows"]
    assert (measured["num_repeats"], measured["labels"]) == (30, {"bytes": "1000000", "type": "uint8"})
    assert missing["problem"] == "more than the machine has"

    assert flagperf(tmp_path, "runs", "verify", "latest").returncode == 0
    exported = json.loads(flagperf(tmp_path, "report", "latest", "--format", "json").stdout)["runs"][0]
    assert exported["metrics"]["copy_rate"]["value"] == metrics["copy_rate"]["value"]
    assert exported["rows"][0]["median"] == measured["median"]
    for lang, heading, title in (("en", "How fast memory is copied", "Copy rate"), ("zh", "内存复制速度", "复制速率")):
        page = flagperf(tmp_path, "report", "latest", "--format", "md", "--lang", lang)
        assert page.returncode == 0, page.stderr
        assert heading in page.stdout and f"**{title}**" in page.stdout
        assert "1000000" in page.stdout and "more than the machine has" in page.stdout

    recorded["rows"][0]["median"] = 1e-9
    (bundle / "run.json").write_text(json.dumps(recorded))
    verified = flagperf(tmp_path, "runs", "verify", "latest")
    assert verified.returncode == 3
    assert 'row clone {"bytes":"1000000","type":"uint8"}: stored' in verified.stdout
