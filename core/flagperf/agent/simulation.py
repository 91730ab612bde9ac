"""Tests without cards: FLAGPERF_SIMULATE=1, read by the agent alone.

The adapter's code is the real one. It reads a machine laid out in the folder FLAGPERF_SIMULATE_ROOT, runs the tools and
loads the libraries that the test put on PATH and LD_LIBRARY_PATH, and the worker computes on a torch device for tests.
All output of such a run is marked as simulated.
"""

from __future__ import annotations

import os
from pathlib import Path

from flagperf.api import Machine
from flagperf.errors import BadInput
from flagperf.files import is_folder

SIMULATE = "FLAGPERF_SIMULATE"
ROOT = "FLAGPERF_SIMULATE_ROOT"


def is_simulated() -> bool:
    value = os.environ.get(SIMULATE, "")
    if value not in ("", "0", "1"):
        raise BadInput(f"{SIMULATE}={value!r}: use 1 to simulate cards, 0 or nothing not to")
    return value == "1"


def node_machine() -> Machine:
    """This machine as adapters see it."""
    if not is_simulated():
        return Machine()
    root = Path(os.environ.get(ROOT, "/"))
    if not is_folder(root):
        raise BadInput(f"{ROOT}={root} is not a folder")
    return Machine(root=root)
