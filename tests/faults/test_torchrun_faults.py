"""Two ranks under the real torchrun: where its store listens, and what is left of it after kill -9 of the agent."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from e2e_flagperf import agent_process, processes_of, read_run, said, wait_for_step
from faulty_flagperf import assert_nothing_left, ended, start

pytest.importorskip("torch")
pytestmark = pytest.mark.run


def test_a_stopped_torchrun_and_deaf_workers_are_gone_and_nothing_listened_outside(tmp_path: Path) -> None:
    request = ("run", "sleeper", "--vendor", "cpu", "--devices", "2", "--set", "fault.mode=stubborn")
    process = start(tmp_path, *request)
    bundle = wait_for_step(tmp_path, process)
    while len(processes_of(bundle)) < 6:  # torchrun, the probe, two workers, each with a child
        assert process.poll() is None
        time.sleep(0.1)
    mine = processes_of(bundle)
    pids = {each.pid for each in mine}
    listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert {each.laddr.ip for each in listening if each.pid in pids} == {"127.0.0.1"}
    launcher = next(each for each in mine if "flagperf.kit.loopback_torchrun" in each.cmdline())
    launcher.suspend()
    agent_process(process, "serve").kill()
    assert ended(process).code == 3
    assert said(read_run(bundle))[0] == "failed"
    assert_nothing_left(tmp_path, bundle, at_once=True)
