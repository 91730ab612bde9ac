"""Tests are imported by their path, which leaves their folders out of sys.path; helpers beside them are found here."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent
TESTS = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]

sys.path[:0] = [str(ROOT / "tests"), *sorted({str(path.parent) for path in TESTS})]
