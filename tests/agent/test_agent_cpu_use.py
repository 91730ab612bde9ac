"""The cores' busy seconds by the kernel's text, and a run's own by a real tree of processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flagperf.agent.probe import busy_seconds, cpu_use
from flagperf.api import Machine

TICKS = os.sysconf("SC_CLK_TCK")

# user nice system idle iowait irq softirq steal guest guest_nice
STAT = "cpu  99 99\ncpu0 100 20 30 4000 500 6 7 8 90 0\ncpu1 1 1 1 9 9 1 1 1 0 0\ncpu2 1000 0 0 0 0 0 0 0 0 0\nintr 5\n"


def test_idle_and_waiting_are_not_busy_and_guests_are_in_user_already() -> None:
    assert busy_seconds(STAT, [0]) == pytest.approx((100 + 20 + 30 + 6 + 7 + 8) / TICKS)


def test_only_the_cores_that_the_run_may_use_count() -> None:
    assert busy_seconds(STAT, [0, 1]) == pytest.approx((171 + 6) / TICKS)


@pytest.mark.parametrize("stat", ["", "cpu 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3\n"])
def test_a_kernel_that_does_not_say_gives_nothing(stat: str) -> None:
    assert busy_seconds(stat, [0]) is None


# Its child computes for half a second and ends when it is told to; both say when they are so far.
LAUNCHER = """
import subprocess, sys
CHILD = "import time\\nwhile time.process_time() < 0.5: pass\\nprint('computed', flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
print("waited", flush=True)
input()
"""


def test_own_seconds_hold_what_children_used_also_after_their_end() -> None:
    before = cpu_use(os.getpid(), Machine())
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert launcher.stdin and launcher.stdout
    assert launcher.stdout.readline() == b"computed\n"
    running = cpu_use(launcher.pid, Machine())
    launcher.stdin.write(b"\n")
    launcher.stdin.flush()
    assert launcher.stdout.readline() == b"waited\n"
    ended = cpu_use(launcher.pid, Machine())
    launcher.communicate(b"\n")
    assert before is not None and running is not None and ended is not None
    assert running.cores == len(os.sched_getaffinity(0))
    assert 0.4 < running.own_seconds <= ended.own_seconds + 0.1
    assert running.all_seconds - before.all_seconds > 0.1


def test_a_launcher_that_has_ended_gives_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert cpu_use(process.pid, Machine()) is None
