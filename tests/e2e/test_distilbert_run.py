"""What `make demo` shows: one case, from one command to numbers that can be recomputed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from e2e_flagperf import Done, bundle_of, environment, flagperf, metric, read_run

pytestmark = pytest.mark.run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, flagperf(folder, "run", "distilbert")


def test_it_succeeds_and_says_what_it_did(finished: tuple[Path, Done]) -> None:
    folder, done = finished
    assert done.code == 0, done.stderr
    assert "vendor: cpu (no" in done.stderr
    for word in ("e2e_time", "p_whole", "p_train", "p_core", "acc", "mem", "MFU", "unknown_peak", "bundle:"):
        assert word in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert [entry.name for entry in folder.iterdir()] == ["runs"]


def test_the_throughputs_are_nested_and_the_target_is_reached(finished: tuple[Path, Done]) -> None:
    run = read_run(bundle_of(finished[0]))
    whole, train, core = (metric(run, name)["value"] for name in ("p_whole", "p_train", "p_core"))
    assert 0 < whole <= train <= core
    assert metric(run, "target")["value"] == 1
    assert metric(run, "p_core")["interval"]["low"] < core < metric(run, "p_core")["interval"]["high"]
    assert metric(run, "e2e_time")["value"] > metric(run, "train_time")["value"]


def test_the_bundle_is_complete_and_sealed(finished: tuple[Path, Done]) -> None:
    bundle = bundle_of(finished[0])
    names = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert {"run.json", "environment.json", "MANIFEST", "events/parent.jsonl", "events/rank-00000.jsonl"} <= names
    assert "samples/node-000.jsonl" in names
    assert not [name for name in names if name.startswith("logs/agent-")]  # the agent had nothing to complain about
    check = subprocess.run(["sha256sum", "--check", "--quiet", "MANIFEST"], cwd=bundle, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr


def test_a_changed_raw_file_is_found_and_named(finished: tuple[Path, Done], tmp_path: Path) -> None:
    original = bundle_of(finished[0])
    copy = tmp_path / original.name
    subprocess.run(["cp", "-r", str(original), str(copy)], check=True)
    assert flagperf(tmp_path, "runs", "verify", str(copy)).code == 0
    events = copy / "events" / "rank-00000.jsonl"
    lines = events.read_text().splitlines()
    last = max(number for number, line in enumerate(lines) if '"step_finished"' in line)
    changed = json.loads(lines[last])
    changed["work"]["samples"] += 1
    lines[last] = json.dumps(changed)
    events.write_text("\n".join(lines) + "\n")
    done = flagperf(tmp_path, "runs", "verify", str(copy))
    assert done.code == 3
    assert "events/rank-00000.jsonl has changed" in done.stdout
    assert "p_core: stored" in done.stdout


def test_json_and_pages_come_from_the_bundle_alone(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    run = flagperf(folder, "report", "latest", "--format", "json").json
    assert json.dumps(run).count("p_core")
    zh = flagperf(folder, "report", "latest", "--format", "md", "--lang", "zh").stdout
    assert "CPU单机单卡（1x1）" in zh
    assert "### 运行情况" in zh
    en = flagperf(folder, "report", "latest", "--format", "md", "--published").stdout
    assert "CPU, 1 node, 1 device (1x1)" in en
    assert "1764.0" in en  # a published result, beside ours


def test_the_next_command_works_as_typed(finished: tuple[Path, Done]) -> None:
    folder, done = finished
    (command,) = [line.removeprefix("next: ") for line in done.stderr.splitlines() if line.startswith("next: ")]
    typed = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, text=True, timeout=300
    )
    assert (typed.returncode, typed.stderr) == (0, "")
    assert "CPU, 1 node, 1 device (1x1)" in typed.stdout


def test_memory_is_that_of_the_worker(finished: tuple[Path, Done]) -> None:
    run = read_run(bundle_of(finished[0]))
    used, total = metric(run, "mem_used")["value"], metric(run, "mem_total")["value"]
    assert 100 << 20 < used < total
    assert run["job"]["memory_scope"] == "host"
    assert metric(run, "mem_allocator")["reason"] == "not_applicable"


def test_two_devices_train_together(tmp_path: Path) -> None:
    done = flagperf(
        tmp_path,
        "run",
        "distilbert",
        "--devices",
        "2",
        "--set",
        "training.max_steps=6",
        "--set",
        "training.warmup_steps=2",
        "--json",
    )
    assert done.code == 0, done.stderr
    bundle = bundle_of(tmp_path)
    ranks = sorted((bundle / "events").glob("rank-*.jsonl"))
    assert len(ranks) == 2
    for events in ranks:
        assert events.read_text().count('"step_finished"') == 6
    run = read_run(bundle)
    assert metric(run, "steps_kept")["value"] == 4
