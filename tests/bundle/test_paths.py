from __future__ import annotations

import subprocess
import sys

from flagperf.bundle import paths


def test_names_sort_by_their_number_and_one_pattern_finds_all() -> None:
    assert str(paths.rank_events(12)) == "events/rank-00012.jsonl"
    assert str(paths.node_samples(3)) == "samples/node-003.jsonl"
    logs = [paths.node_log(process, 7).name for process in ("launcher", "probe", "agent")]
    assert logs == ["node-007.log", "probe-007.log", "agent-007.log"]
    assert paths.rank_log(7).name == "rank-00007.log"
    assert paths.rank_events(123456).match(str(paths.ALL_RANK_EVENTS))
    assert paths.node_samples(1234).match(str(paths.ALL_NODE_SAMPLES))


def test_processes_beside_the_work_do_not_import_metrics() -> None:
    modules = "flagperf.agent.node_run, flagperf.agent.probe, flagperf.worker.__main__"
    code = f"import {modules}, sys; print('flagperf.metrics.entry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
