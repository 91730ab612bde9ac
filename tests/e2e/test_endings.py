"""Every way a run can end: the exit code, the words, the bundle, and no process left."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from e2e_flagperf import (
    agent_process,
    bundle_of,
    flagperf,
    interrupt,
    metric,
    processes_of,
    read_run,
    said,
    start,
    wait_for_step,
    wait_until_gone,
)

pytestmark = pytest.mark.run


@pytest.mark.parametrize(
    ("mode", "code", "status", "words"),
    [
        ("raise", 3, "failed", "rank 1: ValueError: this case was asked to fail"),
        ("kill", 3, "failed", "rank 1: killed by SIGKILL"),
        ("out_of_memory", 4, "out_of_memory", "rank 1: RuntimeError"),
        ("unsupported", 6, "unsupported", "this torch is too old"),
    ],
)
def test_a_rank_that_fails_is_named_and_decides_the_exit_code(
    tmp_path: Path, mode: str, code: int, status: str, words: str
) -> None:
    settings = ["--set", f"trouble.mode={mode}", "--set", "trouble.rank=1"]
    done = flagperf(tmp_path, "run", "trouble", "--devices", "2", *settings)
    assert done.code == code
    assert words in done.stderr
    bundle = bundle_of(tmp_path)
    run = read_run(bundle)
    assert run["ending"]["status"] == status
    assert words in run["ending"]["reason"]
    assert metric(run, "p_core")["reason"] == "run_failed"
    assert "Traceback" not in done.stderr
    assert not processes_of(bundle)
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def test_a_single_worker_that_is_killed_is_named_although_it_has_no_launcher(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=kill")
    assert done.code == 3
    run = read_run(bundle_of(tmp_path))
    assert run["commands"][0]["argv"][1:] == ["-m", "flagperf.worker"]
    assert run["ending"]["reason"] == (
        "rank 0: killed by SIGKILL, often because the machine ran out of memory; see logs/rank-00000.log"
    )
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


@pytest.mark.parametrize(("mode", "words"), [("leave", "SystemExit: 0"), ("vanish", "exited before its case finished")])
def test_a_worker_that_exits_0_before_its_time_has_not_succeeded(tmp_path: Path, mode: str, words: str) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--set", f"trouble.mode={mode}")
    assert done.code == 3
    assert words in read_run(bundle_of(tmp_path))["ending"]["reason"]


def test_a_missed_target_that_gates_is_exit_7_with_all_numbers(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=miss_target")
    assert done.code == 7
    run = read_run(bundle_of(tmp_path))
    assert said(run) == ("target_missed", "acc is 0.1, its target is 0.5")
    assert metric(run, "p_core")["value"] > 0
    assert metric(run, "target")["value"] == 0


def test_the_time_limit_ends_a_hanging_run(tmp_path: Path) -> None:
    done = flagperf(tmp_path, "run", "trouble", "--set", "trouble.mode=orphan", "--timeout", "15")
    assert done.code == 5
    assert "not finished within 15 s" in done.stderr
    assert not processes_of(bundle_of(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_process_and_a_bundle_marked_interrupted(tmp_path: Path, number: int) -> None:
    settings = ["--set", "trouble.mode=orphan", "--set", "training.max_steps=200"]
    process = start(tmp_path, "run", "trouble", "--devices", "2", *settings)
    bundle = wait_for_step(tmp_path, process)
    assert processes_of(bundle)
    done = interrupt(process, number)
    assert done.code == 130
    assert not processes_of(bundle)
    assert read_run(bundle)["ending"]["status"] == "interrupted"
    assert (bundle / "MANIFEST").exists()
    assert flagperf(tmp_path, "runs", "verify", "latest").code == 0


def test_further_ctrl_cs_do_not_break_off_the_orderly_end(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=hang")
    bundle = wait_for_step(tmp_path, process)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert said(read_run(bundle)) == ("interrupted", "stopped by Ctrl-C")
    assert (bundle / "MANIFEST").exists()
    assert not processes_of(bundle)


@pytest.mark.parametrize("verb", ["serve", "run"])
def test_an_agent_that_hangs_does_not_outlast_its_run(tmp_path: Path, verb: str) -> None:
    process = start(tmp_path, "run", "trouble", "--set", "trouble.mode=hang")
    bundle = wait_for_step(tmp_path, process)
    agent_process(process, verb).suspend()
    assert interrupt(process).code == 130
    wait_until_gone(bundle)


def test_a_rank_that_is_killed_on_one_node_is_the_cause_of_what_the_other_says(tmp_path: Path) -> None:
    settings = ["--set", "trouble.mode=kill", "--set", "trouble.rank=1"]
    done = flagperf(tmp_path, "run", "trouble", "--nodes", "2", *settings)
    assert done.code == 3
    assert read_run(bundle_of(tmp_path))["ending"]["reason"].startswith("node 1: rank 1: killed by SIGKILL")
