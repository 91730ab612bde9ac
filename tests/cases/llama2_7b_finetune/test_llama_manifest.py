"""What is known of the case before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from llama_harness import manifest, values

from flagperf.api import PRECISIONS
from flagperf.errors import BadInput
from flagperf.report.sections.rows import check_layout
from flagperf.spec.values import Layer, resolve


def test_listing_and_checking_import_neither_torch_nor_transformers() -> None:
    script = (
        "import sys, flagperf_cases, flagperf_cases.llama2_7b_finetune.checks\n"
        "targets = [case.target for case in flagperf_cases.flagperf_cases()]\n"
        "assert 'flagperf_cases.llama2_7b_finetune.case:run' in targets, targets\n"
        "heavy = {'torch', 'transformers', 'peft', 'accelerate', 'numpy', 'sentencepiece'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_standard_is_the_published_configuration() -> None:
    found = values("standard")
    assert found["training"] == {
        "batch_size": 1, "learning_rate": 1e-4, "accumulate": 1, "epochs": 3, "max_steps": 0, "warmup_steps": 10,
        "seed": 42, "weight_decay": 0.0, "decay": 0.85, "shuffle": False,
    }  # fmt: skip
    assert found["lora"] == {"rank": 8, "alpha": 32, "dropout": 0.05, "targets": ["q_proj", "v_proj"]}
    evaluation = found["evaluation"]
    assert (evaluation["subjects"], evaluation["questions"], evaluation["shots"]) == (57, 0, 5)
    assert (found["model"]["sequence"], evaluation["target"]) == (512, 0.4)
    assert [name for name, profile in manifest().profiles.items() if profile.published] == ["standard"]
    assert manifest().target is not None and not manifest().target.gates


def test_profiles_change_only_keys_that_exist() -> None:
    for profile in manifest().profiles.values():
        resolve(manifest(), [Layer("profile", profile.values)])


@pytest.mark.parametrize(
    ("key", "value"),
    [("evaluation__subjects", 58), ("evaluation__shots", 6), ("lora__rank", 0), ("data__source", "xsum"),
     ("training__decay", 0.0)],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key.replace("__", ".")):
        values(**{key: value})


def test_precisions_and_page_exist() -> None:
    assert set(manifest().precisions) == set(PRECISIONS)
    check_layout(manifest())


def test_published_results_are_kept_in_the_units_of_the_metrics() -> None:
    first, second, third = manifest().references
    assert [each.vendor for each in (first, second, third)] == ["nvidia", "nvidia", "metax"]
    assert [each.precision for each in (first, second, third)] == ["fp32", "fp16", "fp16"]
    assert (second.values["token/p/s"], second.values["acc(MMLU)"], second.values["mfu"]) == (4017, 0.43, 0.361)
    assert first.values["mem_used"] == pytest.approx(37.3 * 2**30)
    assert "token/p/s" not in third.values  # its page does not say
