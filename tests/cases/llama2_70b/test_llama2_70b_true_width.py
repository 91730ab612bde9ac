"""The published configuration as far as one machine without cards can go: one block at its true width."""

from __future__ import annotations

from pathlib import Path

import pytest
from much_memory import much_memory
from rank_processes import answers_of_ranks

pytestmark = pytest.mark.run


def test_a_published_block_goes_forward_and_back_in_bf16_as_in_fp32(tmp_path: Path) -> None:
    from llama2_70b_true_width import forward_and_back

    imports = ["flagperf_cases.decoder.parallel"]
    with much_memory():
        ((found,),) = answers_of_ranks(tmp_path / "rank", 1, forward_and_back, ["standard"], imports)
    assert found["parameters"] == 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28_672 + 2 * 8192
    assert found["products"] == 7 * 3 + 1, "seven products forward, twice as many back, and attention's way back"
    assert found["output"] == found["states"] == ["torch.bfloat16", [1, 96, 8192], True]
    assert found["gradient types"] == ["torch.float32"]
    assert found["gradient shapes"] and found["gradients finite"]
    assert found["from later positions"] == 0
    for name, error in found["errors"].items():
        assert 1e-3 < error < 0.03, f"{name}: bf16 has a relative error, of about 1 %; here it is {error}"
