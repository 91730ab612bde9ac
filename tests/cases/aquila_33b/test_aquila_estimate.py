"""What a rank of aquila_33b needs: by hand, and against tensors of the case as it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness
from tensor_bytes import case_bytes

from flagperf.errors import BadInput
from flagperf_cases.aquila_33b.data import estimate

CASE = CaseHarness("aquila_33b")
HEAVY = {"layers": 3, "width": 96, "heads": 8, "kv_heads": 4, "ffn": 288, "vocabulary": 256, "sequence": 128}
"""Weights and blocks decide; in the other one the logits do."""
WIDE = {"layers": 2, "width": 64, "heads": 8, "kv_heads": 2, "ffn": 128, "vocabulary": 2000, "sequence": 128}
RUNS: list[dict[str, Any]] = [
    {
        **{f"model__{name}": size for name, size in sizes.items()},
        "precision": precision,
        "inference__batch_size": 2,
        "inference__warmup_steps": 0,
        "data__samples": 6,
    }
    for sizes, precision in ((HEAVY, "bf16"), (WIDE, "fp32"))
]


def test_the_published_configuration_is_weights_for_the_most_part() -> None:
    parts = estimate(CASE.values("standard", devices=8))
    norms = 121 * 6144  # on every rank
    assert parts["parameters"] == 2 * ((33_693_554_688 - norms) // 8 + norms)
    head = 4096 * 6144 * 2 + 4096 * 12_501 * (2 + 3 * 4)
    assert parts["activations"] == head


def test_a_layout_that_the_case_does_not_have_is_refused() -> None:
    with pytest.raises(BadInput, match="supports tensor parallelism only"):
        estimate(CASE.values("standard", devices=16, parallel__pp=2))


@pytest.mark.run
@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.full)])
def test_the_estimate_is_near_the_tensors_of_the_case_as_it_runs(world_size: int, tmp_path: Path) -> None:
    measured = case_bytes(tmp_path / "ranks", world_size, "aquila_33b", RUNS)
    for run, found in zip(RUNS, measured, strict=True):
        parts = estimate(CASE.values(devices=world_size, **run))
        assert sum(parts.values()) == pytest.approx(found, rel=0.15), (run, parts, found)
