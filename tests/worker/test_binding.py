"""A rank and the CPUs near its card, in a process of its own: an affinity cannot be given back for sure."""

from __future__ import annotations

import os
import subprocess
import sys

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
