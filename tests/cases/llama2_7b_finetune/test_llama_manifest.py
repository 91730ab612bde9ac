"""What is known of the case before it is imported."""

from __future__ import annotations

import pytest
from case_harness import CaseHarness

from flagperf.errors import BadInput

CASE = CaseHarness("llama2_7b_finetune")


def test_standard_is_the_published_configuration() -> None:
    found = CASE.values("standard")
    assert found["training"] == {
        "batch_size": 1,
        "learning_rate": 1e-4,
        "accumulate": 1,
        "epochs": 3,
        "max_steps": 0,
        "warmup_steps": 10,
        "seed": 42,
        "weight_decay": 0.0,
        "decay": 0.85,
        "shuffle": False,
    }
    assert found["lora"] == {"rank": 8, "alpha": 32, "dropout": 0.05, "targets": ["q_proj", "v_proj"]}
    evaluation = found["evaluation"]
    assert (evaluation["subjects"], evaluation["questions"], evaluation["shots"]) == (57, 0, 5)
    assert (found["model"]["sequence"], evaluation["target"]) == (512, 0.4)
    assert CASE.manifest().target is not None and not CASE.manifest().target.gates


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("evaluation__subjects", 58),
        ("evaluation__shots", 6),
        ("lora__rank", 0),
        ("data__source", "xsum"),
        ("training__decay", 0.0),
    ],
)
def test_values_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key.replace("__", ".")):
        CASE.values(**{key: value})


def test_published_results_are_kept_in_the_units_of_the_metrics() -> None:
    first, second, third = CASE.manifest().references
    assert [each.vendor for each in (first, second, third)] == ["nvidia", "nvidia", "metax"]
    assert [each.precision for each in (first, second, third)] == ["fp32", "fp16", "fp16"]
    assert (second.values["token/p/s"], second.values["mmlu_original"], second.values["mfu"]) == (4017, 0.43, 0.361)
    assert first.values["mem_used"] == pytest.approx(37.3 * 2**30)
    assert "token/p/s" not in third.values  # its page does not say
