from __future__ import annotations

import os
from pathlib import Path

import pytest

from flagperf.testing.process import adapter_process


def test_a_process_that_has_ended_before_it_is_asked_says_why(tmp_path: Path) -> None:
    with adapter_process("no-such-vendor", os.environ, tmp_path) as process:
        process._process.wait(600)
        with pytest.raises(AssertionError, match=r"the adapter's process ended at 'look': .*no-such-vendor"):
            process.ask("look")
