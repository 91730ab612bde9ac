"""Published configurations as far as one machine without cards can go: one layer at its true width."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_processes import answers_of_ranks

pytestmark = [pytest.mark.run, pytest.mark.full]


LAYER = 2 * 6144**2 + 2 * 6144 * 1024 + 3 * 6144 * 24_576 + 2 * 6144
TABLE = 100_008 * 6144
VARIANCE = 6144 * 0.02**2
"""Of the logits: the last norm gives numbers of mean square 1, and the head's weights have a deviation of 0.02."""


@contextlib.contextmanager
def much_memory() -> Iterator[None]:
    """One such test at a time, however many processes pytest has. The kernel ends the turn with the process."""
    path = Path(tempfile.gettempdir()) / f"flagperf-tests-much-memory-{os.getuid()}"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_a_published_layer_scores_lambada_from_two_shards_in_bf16(shared_data: Path, tmp_path: Path) -> None:
    from aquila_true_width import score_lambada

    folder = tmp_path / "data"
    (folder / "data").mkdir(parents=True)
    (folder / "data/lambada_test.jsonl").symlink_to(shared_data / "lambada/lambada_test.jsonl")
    (folder / "tokenizer").symlink_to(shared_data / "tokenizers/aquila")
    imports = ["flagperf_cases.aquila_33b.case"]
    try:
        with much_memory():
            ((found,),) = answers_of_ranks(tmp_path / "rank", 1, score_lambada, [folder], imports)
    finally:
        shutil.rmtree(folder / "ckpts", ignore_errors=True)  # 3.5 GB
    assert (found["parameters"], found["shards"]) == (LAYER + 2 * TABLE + 6144, 2)
    assert (found["evaluated"], found["precision"]) == (1, "bf16")
    assert found["products"] == 8, "seven products of the layer and the head's"
    assert found["loss"] == pytest.approx(math.log(100_008) + VARIANCE / 2, abs=0.7), (
        "random weights give normal logits"
    )


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
