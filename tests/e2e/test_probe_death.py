"""A probe that dies beside running workers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from e2e_flagperf import agent_process, flagperf, interrupt, metric, read_run, start, wait_for_step

pytestmark = pytest.mark.run


def test_a_probe_that_is_killed_leaves_no_memory_figure_but_the_cause(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=hang", "--sample-seconds", "0.1")
    bundle = wait_for_step(tmp_path, process)
    samples = bundle / "samples" / "node-000.jsonl"
    await_count(samples, '"type":"sampled"', 3)
    agent_process(process, "probe").kill()
    await_count(samples, '"type":"probe_failed"', 1)
    assert interrupt(process).code == 130
    used = metric(read_run(bundle), "mem_used")
    assert used["reason"] == "invalid_telemetry"
    assert used["detail"].startswith("node 0: the probe ended early (killed by SIGKILL")
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def await_count(path: Path, word: str, count: int, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while path.read_text().count(word) < count:
        assert time.monotonic() < deadline, f"{word} did not appear in {path.name}"
        time.sleep(0.1)
