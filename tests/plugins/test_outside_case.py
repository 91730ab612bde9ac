"""A case that comes from outside this repository, on a vendor that does too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from plugin_harness import FlagPerf

GIB = 1 << 30


def test_it_is_shown_without_being_imported(flagperf: FlagPerf) -> None:
    ended = flagperf("cases", "show", "toy_data")
    assert ended.returncode == 0, ended.stderr
    assert "A toy with data" in ended.stdout and "toys.txt one toy per line" in ended.stdout


def test_real_data_needs_a_directory(flagperf: FlagPerf) -> None:
    ended = flagperf("plan", "toy_data", "--profile", "standard")
    assert ended.returncode == 2
    assert "profile standard of case toy_data reads real data: give --data-dir" in ended.stderr


def test_the_cases_own_check_says_what_is_missing(flagperf: FlagPerf, tmp_path: Path) -> None:
    ended = flagperf("plan", "toy_data", "--profile", "standard", "--data-dir", str(tmp_path))
    assert ended.returncode == 2
    assert f"{tmp_path}/toys.txt is missing: write one toy per line into it" in ended.stderr


def test_the_data_is_in_the_plan_with_its_sha256(flagperf: FlagPerf, tmp_path: Path) -> None:
    content = b"bear\nball\n"
    (tmp_path / "toys.txt").write_bytes(content)
    ended = flagperf("plan", "toy_data", "--profile", "standard", "--data-dir", str(tmp_path), "--json")
    assert ended.returncode == 0, ended.stderr
    expected = {"path": "toys.txt", "num_bytes": 10, "sha256": hashlib.sha256(content).hexdigest()}
    assert ended.json["job"]["data_files"] == [expected]


@pytest.mark.run
def test_it_runs_on_the_vendors_cards_and_the_bundle_tells_all_three(flagperf: FlagPerf, tmp_path: Path) -> None:
    ended = flagperf("run", "toy", "--runs-dir", str(tmp_path), "--json", state="present", ACME_DEBUG="1")
    assert ended.returncode == 0, ended.stderr
    assert "vendor: acme" in ended.stderr
    (bundle,) = tmp_path.iterdir()
    run = json.loads((bundle / "run.json").read_text())
    assert (run["job"]["vendor"], run["job"]["case_version"], run["ending"]["status"]) == ("acme", 2, "succeeded")
    metrics = {metric["name"]: metric.get("value") for metric in run["metrics"]}
    assert metrics["acc"] == 0.75
    assert metrics["mem_used"] == 3 * GIB
    started = json.loads((bundle / "events" / "rank-00000.jsonl").read_text().splitlines()[0])
    assert (started["device_id"], started["mapping"]) == ("acme-aaaa", "uuid")
    assert started["framework"]["acme_fast"] == "1" and started["framework"]["cpus"]
    probe = json.loads((bundle / "samples" / "node-000.jsonl").read_text().splitlines()[0])
    assert (probe["probe"], probe["not_used"]) == ("acme-sysfs", {"acme-smi": "acme-smi is not installed"})
