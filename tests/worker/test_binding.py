"""A rank and the CPUs near its card, in a process of its own: an affinity cannot be given back for sure."""

from __future__ import annotations

import os
import subprocess
import sys

from flagperf.api import Device, NodeShare

BOUND = """
import sys
from flagperf.worker.__main__ import bind_to_cpus, bound_cpus
bind_to_cpus(sys.argv[1])
print(bound_cpus())
"""


def bound(cpus: str) -> str:
    done = subprocess.run([sys.executable, "-c", BOUND, cpus], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_rank_runs_where_it_is_told() -> None:
    last = max(os.sched_getaffinity(0))
    assert bound(str(last)) == str(last)


def test_a_rank_that_is_told_nothing_stays_where_it_is() -> None:
    assert len(bound("")) > 0


def share(*near: str, allowed_cores: int = 64) -> NodeShare:
    cards = tuple(Device(f"GPU-{index}", "A1", "A1", index, near_cpus=cpus) for index, cpus in enumerate(near))
    return NodeShare(0, 1, cards, "localhost", 1, allowed_cores, host_workers=len(cards))


def test_threads_are_an_even_part_of_the_cpus_near_the_card() -> None:
    assert share("0-31", "0-31", "32-63", "32-63").num_threads == 16
    assert share("0-31").num_threads == 32  # and not the 64 of the machine
    assert share("0-3", "0-3", "4-63").num_threads == 2
    assert share("", "").num_threads == 32
