"""Groups of real runs: made, summed up, compared, interrupted."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from e2e_flagperf import flagperf, interrupt, metric, read_run, start, wait_for_event

pytestmark = pytest.mark.run

SHORT = ["--set", "training.max_steps=12", "--set", "training.step_seconds=0.01"]


def runs_of(folder: Path) -> list[dict]:  # type: ignore[type-arg]
    return [read_run(path) for path in sorted((folder / "runs").iterdir())]


def test_two_settings_take_turns_and_are_compared_pair_by_pair(tmp_path: Path) -> None:
    other = ["--interleave-with", "training.step_seconds=0.02"]
    done = flagperf(tmp_path, "run", "trouble", *SHORT, "--repeat", "2", *other)
    assert done.code == 0, done.stderr
    runs = runs_of(tmp_path)
    groups = [run["group"] for run in sorted(runs, key=lambda run: run["group"]["index"])]
    assert [group["arm"] for group in groups] == ["A", "B", "B", "A"]
    assert {(group["id"], group["of"]) for group in groups} == {(groups[0]["id"], 4)}
    assert {run["job"]["config"]["values"]["training"]["step_seconds"] for run in runs} == {0.01, 0.02}
    assert "2 of 2 runs with results" in done.stdout and "compared pair by pair" in done.stdout
    assert f"compare {groups[0]['id']}" in done.stderr
    for run in runs:
        assert flagperf(tmp_path, "runs", "verify", run["id"]).code == 0
    compared = flagperf(tmp_path, "compare", groups[0]["id"], "--json", "--fail-if", "p_core < -20%").json
    (core,) = [each for each in compared["metrics"] if each["name"] == "p_core"]
    assert core["against"]["B"]["method"] == "paired"
    a, b = ([metric(run, "p_core")["value"] for run in runs if run["group"]["arm"] == arm] for arm in "AB")
    assert core["against"]["B"]["ratio"] == pytest.approx(math.sqrt(b[0] / a[0] * b[1] / a[1]))
    assert [(each["subject"], each["name"]) for each in compared["differences"]] == [
        ("configuration", "training.step_seconds")
    ]


def test_repeats_are_one_side_and_a_failed_one_is_left_out(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", *SHORT, "--repeat", "2", "--json")
    assert done.code == 0, done.stderr
    group = done.json["runs"][0]["group"]
    assert [run["group"]["index"] for run in done.json["runs"]] == [1, 2]
    alone = flagperf(tmp_path, "run", "trouble", *SHORT, "--json").json["runs"][0]
    assert alone["group"] is None
    compared = flagperf(tmp_path, "compare", group["id"], alone["id"])
    assert compared.code == 0 and "2 runs" in compared.stdout


def test_a_first_run_without_results_ends_the_group(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=raise", "--repeat", "3")
    assert done.code == 3
    assert len(runs_of(tmp_path)) == 1
    assert "1 of 3 runs are kept, 0 of them with results; 2 were not started" in done.stderr
    assert "this case was asked to fail" in done.stderr


def test_ctrl_c_ends_the_group_with_the_run_and_says_what_is_kept(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=hang_after_another", "--repeat", "3")
    first = wait_for_event(tmp_path, process, "step_finished")
    while len(list((tmp_path / "runs").glob("*/events/rank-00000.jsonl"))) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    done = interrupt(process)
    assert done.code == 130
    assert read_run(first)["ending"]["status"] == "succeeded"
    assert sorted(run["ending"]["status"] for run in runs_of(tmp_path)) == ["interrupted", "succeeded"]
    assert "2 of 3 runs are kept, 1 of them with results; 1 were not started" in done.stderr
