"""Several devices and several nodes, for real."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from e2e_flagperf import bundle_of, flagperf, metric, read_run

pytestmark = pytest.mark.run


def test_two_nodes_are_two_agents_and_two_parts_of_one_bundle(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--nodes", "2", "--json")
    assert done.code == 0, done.stderr
    bundle = bundle_of(tmp_path)
    assert bundle.name.split("-")[3] == "2x1"
    assert sorted(file.name for file in (bundle / "samples").iterdir()) == ["node-000.jsonl", "node-001.jsonl"]
    first_lines = [(bundle / "events" / f"rank-0000{rank}.jsonl").read_text().splitlines()[0] for rank in (0, 1)]
    starts = [json.loads(line) for line in first_lines]
    assert [(start["node_index"], start["local_rank"], start["world_size"]) for start in starts] == [
        (0, 0, 2),
        (1, 0, 2),
    ]
    assert starts[0]["clock"]["pid"] != starts[1]["clock"]["pid"]
    run = read_run(bundle)
    assert metric(run, "mem_used")["value"] > 0
    assert [f"--node-rank={rank}" in command["argv"] for rank, command in enumerate(run["commands"])] == [True, True]
    assert run["commands"] == launched_commands(bundle)


def launched_commands(bundle: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (bundle / "events" / "parent.jsonl").read_text().splitlines()]
    launched = [event for event in events if event["type"] == "workers_launched"]
    return [event["command"] for event in sorted(launched, key=lambda event: int(event["node_index"]))]


def test_more_workers_than_cores_are_marked(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        done = flagperf(tmp_path, "run", "trouble", "--devices", "2")
    finally:
        os.sched_setaffinity(0, before)
    assert done.code == 0, done.stderr
    assert "more workers than cores" in done.stderr
    run = read_run(bundle_of(tmp_path))
    assert run["job"]["oversubscribed"] is True
    for name in ("p_whole", "p_train", "p_core", "token/p/s"):
        assert "oversubscribed" in metric(run, name)["marks"]
    assert "oversubscribed" in flagperf(tmp_path, "report", "latest").stdout
    assert "oversubscribed" in flagperf(tmp_path, "report", "latest", "--format", "md").stdout


def test_every_worker_gets_its_share_of_the_cores(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "plan", "trouble", "--devices", "2", "--json")
    (command,) = done.json["commands"]
    (threads,) = [setting for setting in command["settings"] if setting["name"] == "OMP_NUM_THREADS"]
    cores = done.json["job"]["nodes"][0]["allowed_cores"]
    assert threads["value"] == str(max(1, cores // 2))


def test_nodes_of_one_machine_share_its_64_slots(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "plan", "trouble", "--nodes", "2", "--devices", "64")
    assert done.code == 2
    assert "more than this machine's 64 cpu devices" in done.stderr


def test_more_than_64_slots_are_refused(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--devices", "65")
    assert done.code == 2
    assert "64 visible cpu devices" in done.stderr
    assert list(tmp_path.iterdir()) == []
