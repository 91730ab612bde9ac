"""What is known of the case before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from case_harness import CaseHarness

from flagperf.api import PRECISIONS
from flagperf.errors import BadInput
from flagperf.spec.values import Layer, resolve

CASE = CaseHarness("distilbert")


def test_listing_and_checking_import_neither_torch_nor_transformers() -> None:
    script = (
        "import sys, flagperf_cases, flagperf_cases.distilbert.data\n"
        "targets = [case.target for case in flagperf_cases.flagperf_cases()]\n"
        "assert 'flagperf_cases.distilbert.case:run' in targets, targets\n"
        "heavy = {'torch', 'transformers', 'accelerate', 'numpy', 'tokenizers', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


def test_standard_is_the_published_configuration() -> None:
    found = CASE.values("standard")
    assert found["training"] == {
        "batch_size": 32, "learning_rate": 5e-5, "accumulate": 1, "epochs": 10, "max_steps": 0, "warmup_steps": 10,
        "seed": 0, "optimizer": "adamw", "weight_decay": 0.0,
    }  # fmt: skip
    assert (found["evaluation"]["batch_size"], found["evaluation"]["target"]) == (4, 0.91)
    assert [name for name, profile in CASE.manifest().profiles.items() if profile.published] == ["standard"]
    assert CASE.manifest().default_profile == "tiny"


def test_profiles_change_only_keys_that_exist() -> None:
    for profile in CASE.manifest().profiles.values():
        resolve(CASE.manifest(), [Layer("profile", profile.values)])


@pytest.mark.parametrize(
    ("key", "value"),
    [("training__optimizer", "lamb"), ("data__source", "imdb"), ("model__dropout", 1.0), ("evaluation__target", 1.5)],
)
def test_values_that_make_no_sense_are_refused(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=key.replace("__", ".")):
        CASE.values(**{key: value})


def test_precisions_exist() -> None:
    assert set(CASE.manifest().precisions) <= set(PRECISIONS)


def test_published_results_are_kept_in_the_units_of_the_metrics() -> None:
    references = CASE.manifest().references
    assert [(r.vendor, r.nodes, r.devices_per_node) for r in references] == [
        ("nvidia", 1, 8), ("nvidia", 1, 8), ("nvidia", 1, 1), ("nvidia", 2, 8),
        ("metax", 1, 8), ("metax", 1, 1), ("metax", 2, 8), ("kunlun", 1, 1), ("kunlun", 1, 8), ("kunlun", 2, 8),
    ]  # fmt: skip
    assert references[0].values["mem_used"] == pytest.approx(13.9 * 2**30)
    assert references[2].overrides == "bs=96, lr=1.5e-4"
