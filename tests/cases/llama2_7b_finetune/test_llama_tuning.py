"""What vendors' packages say about this case: the values of the published rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_harness import CaseHarness

from flagperf.plan.settings import find_tuning
from flagperf.spec.values import Layer, resolve

CASE = CaseHarness("llama2_7b_finetune")

PLUGINS = Path(__file__).parents[3] / "plugins"


@pytest.mark.parametrize(
    ("vendor", "model", "precision", "batch_size", "learning_rate"),
    [("nvidia", "A100-SXM4-40GB", "fp32", 2, 1e-4), ("metax", "C500", "fp16", 4, 1e-6)],
)
def test_published_rows_are_run_with_their_values(
    vendor: str, model: str, precision: str, batch_size: int, learning_rate: float
) -> None:
    folder = PLUGINS / vendor / f"src/flagperf_{vendor}/tuning"
    tuning = find_tuning(folder, "llama2_7b_finetune", model, 1, 1, "standard")
    assert tuning is not None
    values = resolve(CASE.manifest(), [Layer("tuning", tuning.values, source="vendor")]).values
    assert values["precision"] == precision
    assert (values["training"]["batch_size"], values["training"]["learning_rate"]) == (batch_size, learning_rate)
    assert find_tuning(folder, "llama2_7b_finetune", model, 1, 8, "standard") is None  # nobody has published that
