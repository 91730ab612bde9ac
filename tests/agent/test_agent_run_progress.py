"""What the verb `run` sends while its workers run: real ones, which write events."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from flagperf.agent import node_run as agent_run
from flagperf.bundle.paths import FOLDERS, rank_events
from flagperf.spec.protocol import AgentMessage, Progress, WorkOrder
from run_builders import minimal_job

WORKER = """
import sys
for step in range(1, 11):
    with open(sys.argv[1], "a") as file:
        file.write('{"type":"step_finished","t_ns":%d,"step":%d,"began_ns":0,"compute_ns":1,"wait_ns":0,"work":{}}\\n' % (step, step))
    sys.stdin.readline()
"""  # noqa: E501


class NoProbe:
    def poll(self) -> None:
        pass


class Heard(io.BytesIO):
    """The worker takes its next step once somebody has heard of the last one."""

    def __init__(self, worker: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._worker = worker

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._worker.stdin.fileno(), b"\n")  # type: ignore[union-attr]


@pytest.mark.parametrize("seconds", [300.0, 0.0])
def test_progress_is_sent_once_in_a_while_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(agent_run, "PROGRESS_SECONDS", seconds)
    monkeypatch.setattr(agent_run, "POLL_SECONDS", 0.02)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    order = WorkOrder(minimal_job(), 0, 1, 0, 1, str(tmp_path))
    command = [sys.executable, "-c", WORKER, str(tmp_path / rank_events(0))]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        sent = Heard(worker)
        if seconds:
            for _ in range(10):  # it waits for nobody
                sent.flush()
        agent_run._follow(order, worker, NoProbe(), None, threading.Event(), sent)  # type: ignore[arg-type]
    messages = [msgspec.json.decode(line, type=AgentMessage) for line in sent.getvalue().splitlines()]
    steps = [message.step for message in messages if isinstance(message, Progress)]
    if seconds:
        assert steps[-1] == 10 and len(steps) <= 2
    else:
        assert steps == list(range(1, 11))
