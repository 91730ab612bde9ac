"""What is known of the case before it is imported."""

from __future__ import annotations

import pytest
from case_harness import CaseHarness

from flagperf.api import PRECISIONS
from flagperf.errors import BadInput

CASE = CaseHarness("glm")


def test_standard_is_the_published_configuration() -> None:
    found = CASE.values("standard")
    assert found["training"] == {
        "batch_size": 8,
        "learning_rate": 1e-5,
        "accumulate": 1,
        "max_samples": 5_553_080,
        "max_steps": 0,
        "warmup_steps": 20,
        "schedule_steps": 4338,
        "seed": 10483,
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "clip": 1.0,
    }
    assert found["evaluation"] == {"batch_size": 8, "target": 0.8, "every_samples": 19200, "max_rows": 0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("training__optimizer", "lamb"),
        ("data__source", "squad"),
        ("model__logits", "none"),
        ("model__dropout", 1.0),
        ("evaluation__target", 1.5),
        ("evaluation__every_samples", 0),
        ("training__max_samples", 0),
    ],
)
def test_values_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key.replace("__", ".")):
        CASE.values(**{key: value})


def test_precisions_exist() -> None:
    assert set(CASE.manifest().precisions) == {"fp32", "tf32", "fp16", "bf16"} <= set(PRECISIONS)


def test_published_results_are_kept_in_the_units_of_the_metrics() -> None:
    references = CASE.manifest().references
    shapes = [(r.vendor, r.nodes, r.devices_per_node) for r in references]
    assert shapes[:4] == [("nvidia", 1, 8), ("nvidia", 1, 8), ("nvidia", 1, 1), ("nvidia", 2, 8)]
    assert [vendor for vendor, _, _ in shapes[4:]] == [
        *["metax"] * 3,
        *["hygon"] * 2,
        *["kunlun"] * 3,
        *["iluvatar"] * 3,
    ]
    assert references[0].values["mem_used"] == pytest.approx(33.0 * 2**30)
    assert (references[0].values["acc"], references[0].values["mfu"]) == (0.808, 0.035)
    assert references[1].overrides == "bs=16, lr=1e-5"
