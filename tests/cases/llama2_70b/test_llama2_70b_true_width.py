"""The published configuration as far as one machine without cards can go: one block at its true width."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import true_width

pytestmark = pytest.mark.run

SECONDS = 1500


def test_a_published_block_goes_forward_and_back_in_bf16_as_in_fp32(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, true_width.__file__, str(tmp_path / "answer")]
    subprocess.run(command, env=environment, check=True, timeout=SECONDS)
    found = json.loads((tmp_path / "answer").read_text())
    assert found["parameters"] == 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28_672 + 2 * 8192
    assert found["products"] == 7 * 3 + 1, "seven products forward, twice as many back, and attention's way back"
    assert found["output"] == found["states"] == ["torch.bfloat16", [1, 512, 8192], True]
    assert found["gradient types"] == ["torch.float32"]
    assert found["gradient shapes"] and found["gradients finite"]
    assert found["from later positions"] == 0
    for name, error in found["errors"].items():
        assert 1e-3 < error < 0.03, f"{name}: bf16 has a relative error, of about 1 %; here it is {error}"
