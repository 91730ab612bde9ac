"""What holds for all tests, wherever they are and however they are started."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import sysconfig
from pathlib import Path

from click.testing import CliRunner
from hypothesis import settings

ROOT = Path(__file__).parent
TESTS = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]

# Tests are imported by their path, which leaves their folders out of sys.path; helpers beside them are found here.
sys.path[:0] = [str(ROOT / "tests"), *sorted({str(path.parent) for path in TESTS})]

# As in an activated environment: messages name the command `flagperf` where PATH finds this one.
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])

# A busy machine is no failure. For runs whose subject is another Python or another library, what holds of any input is
# tried on few.
settings.register_profile("default", deadline=None)
settings.register_profile("light", max_examples=10, deadline=None)
settings.load_profile("default")

# Before click 8.2, its runner mixes what is written to stderr into stdout unless it is told otherwise.
if "mix_stderr" in inspect.signature(CliRunner).parameters:
    CliRunner.__init__ = functools.partialmethod(CliRunner.__init__, mix_stderr=False)

# What tests start can be hung up, also where they run under nohup, which would be inherited.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Commands print as into a pipe: pytest-xdist gives its workers the width of a terminal, and CI may force color.
for variable in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
    os.environ.pop(variable, None)
