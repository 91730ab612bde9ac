"""What is known of the case before it is imported."""

from __future__ import annotations

import pytest
from case_harness import CaseHarness

from flagperf.errors import BadInput

CASE = CaseHarness("distilbert")


def test_standard_is_the_published_configuration() -> None:
    found = CASE.values("standard")
    assert found["training"] == {
        "batch_size": 32,
        "learning_rate": 5e-5,
        "accumulate": 1,
        "epochs": 10,
        "max_steps": 0,
        "warmup_steps": 10,
        "seed": 0,
        "optimizer": "adamw",
        "weight_decay": 0.0,
    }
    assert (found["evaluation"]["batch_size"], found["evaluation"]["target"]) == (4, 0.91)


@pytest.mark.parametrize(
    ("key", "value"),
    [("training__optimizer", "lamb"), ("data__source", "imdb"), ("model__dropout", 1.0), ("evaluation__target", 1.5)],
)
def test_values_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key.replace("__", ".")):
        CASE.values(**{key: value})


def test_published_results_are_kept_in_the_units_of_the_metrics() -> None:
    references = CASE.manifest().references
    assert [(r.vendor, r.nodes, r.devices_per_node) for r in references] == [
        ("nvidia", 1, 8),
        ("nvidia", 1, 8),
        ("nvidia", 1, 1),
        ("nvidia", 2, 8),
        ("metax", 1, 8),
        ("metax", 1, 1),
        ("metax", 2, 8),
        ("kunlun", 1, 1),
        ("kunlun", 1, 8),
        ("kunlun", 2, 8),
    ]
    assert references[0].values["mem_used"] == pytest.approx(13.9 * 2**30)
    assert references[2].overrides == "bs=96, lr=1.5e-4"
