"""What holds for all tests, wherever they are and however they are started."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent
SHIPPED = ROOT / "tests" / "shipped"
"""Adapters as they were shipped: run by a test, with themselves installed, and not collected."""
collect_ignore = [str(SHIPPED)]
FOUND = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]
TESTS = [path for path in FOUND if SHIPPED not in path.parents]

# Tests are imported by their path, which leaves their folders out of sys.path; helpers beside them are found here.
sys.path[:0] = [str(ROOT / "tests"), *sorted({str(path.parent) for path in TESTS})]

# As in an activated environment: messages name the command `flagperf` where PATH finds this one.
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])

# Commands print as into a pipe: pytest-xdist gives its workers the width of a terminal, and CI may force color.
for variable in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(variable, None)
