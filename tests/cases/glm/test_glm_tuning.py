"""What the vendors' packages say about this case: the configurations behind the published rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_harness import CaseHarness

from flagperf.plan.settings import find_tuning
from flagperf.spec.values import Layer, resolve

CASE = CaseHarness("glm")

PLUGINS = Path(__file__).parents[3] / "plugins"


def tuned(vendor: str, model: str, nodes: int, devices: int) -> dict[str, Any] | None:
    folder = PLUGINS / vendor / f"src/flagperf_{vendor}/tuning"
    tuning = find_tuning(folder, "glm", model, nodes, devices, "standard")
    if tuning is None:
        return None
    found = CASE.manifest()
    layers = [Layer("standard", found.profiles["standard"].values), Layer("tuning", tuning.values, source="vendor")]
    return resolve(found, layers).values


@pytest.mark.parametrize(
    ("vendor", "model", "shape", "precision", "batch_size", "rate", "max_samples"),
    [
        ("nvidia", "A100-SXM4-40GB", (1, 1), "fp16", 16, 1e-5, 24_135),
        ("nvidia", "A100-SXM4-40GB", (1, 8), "fp16", 8, 1e-5, 5_553_080),
        ("nvidia", "A100-SXM4-40GB", (2, 8), "fp16", 8, 1e-5, 5_553_080),
        ("metax", "C500", (1, 1), "fp16", 16, 1e-5, 24_135),
        ("metax", "C500", (1, 8), "fp16", 16, 1e-5, 5_553_080),
        ("metax", "C500", (2, 8), "fp16", 16, 2e-5, 5_553_080),
        ("hygon", "K100", (1, 1), "fp16", 16, 1e-5, 24_135),
        ("hygon", "K100", (1, 8), "fp16", 8, 1e-5, 5_553_080),
        ("kunlun", "R300", (1, 1), "fp32", 4, 1e-5, 4_000),
        ("kunlun", "R300", (1, 8), "fp32", 5, 1e-5, 5_553_080),
        ("kunlun", "R300", (2, 8), "fp32", 4, 1e-5, 20_000),
    ],
)
def test_published_rows_have_their_configuration(
    vendor: str, model: str, shape: tuple[int, int], precision: str, batch_size: int, rate: float, max_samples: int
) -> None:
    found = tuned(vendor, model, *shape)
    assert found is not None
    assert found["precision"] == precision
    assert (found["training"]["batch_size"], found["evaluation"]["batch_size"]) == (batch_size, batch_size)
    assert (found["training"]["learning_rate"], found["training"]["max_samples"]) == (rate, max_samples)
    assert found["training"]["seed"] == (4096 if vendor == "kunlun" else 10483)


def test_other_cards_and_shapes_run_the_case_as_it_is() -> None:
    assert tuned("nvidia", "A100-SXM4-80GB", 1, 8) is None
    assert tuned("metax", "C500", 4, 8) is None
