"""Names of published results."""

from __future__ import annotations

from typing import Any

import pytest

from flagperf.errors import BadInput
from flagperf.plugins.installed import load_plugins
from flagperf.spec.published import PublishedResult, find_published, published_name, published_names


def result(**fields: Any) -> PublishedResult:
    usual = {"vendor": "nvidia", "device": "A100-SXM4-40GB", "nodes": 1, "devices_per_node": 8, "precision": "fp32"}
    more = {"overrides": "none", "source": "README.md", "values": {"p_core": 1.0}}
    return PublishedResult(**{**usual, **more, **fields})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "distilbert-nvidia-a100-sxm4-40gb-1x8-fp32"),
        ({"overrides": "bs=96, lr=1.5e-4"}, "distilbert-nvidia-a100-sxm4-40gb-1x8-fp32-bs=96-lr=1.5e-4"),
        ({"precision": "per-row", "overrides": "/"}, "distilbert-nvidia-a100-sxm4-40gb-1x8"),
        ({"device": "Atlas 800T A2", "nodes": 2}, "distilbert-nvidia-atlas-800t-a2-2x8-fp32"),
        ({"parallel": "TP8PP4DP1"}, "distilbert-nvidia-a100-sxm4-40gb-1x8-fp32-tp8pp4dp1"),
        ({"overrides": "torch; published twice"}, "distilbert-nvidia-a100-sxm4-40gb-1x8-fp32-torch"),
    ],
)
def test_a_name_says_what_it_is(fields: dict[str, Any], name: str) -> None:
    assert published_name("distilbert", result(**fields)) == name


def test_pages_for_one_figure_each_are_one_result() -> None:
    one, other = result(values={"gemm_fp16": 1.0}, source="a"), result(values={"gemm_bf16": 2.0}, source="b")
    ((_, merged),) = published_names("gemm", [one, other]).items()
    assert (merged.values, merged.source) == ({"gemm_fp16": 1.0, "gemm_bf16": 2.0}, "a, b")


def test_results_that_contradict_each_other_are_two() -> None:
    found = published_names("gemm", [result(values={"x": 1.0}), result(values={"x": 2.0}), result(values={})])
    assert [each.values["x"] for each in found.values()] == [1.0, 2.0]
    assert list(found)[1] == f"{next(iter(found))}-2"


def test_all_shipped_results_have_a_name_of_their_own() -> None:
    for name, case in load_plugins().complete_cases().items():
        found = published_names(name, case.manifest.references)
        values = sum(len(reference.values) for reference in case.manifest.references)
        assert sum(len(reference.values) for reference in found.values()) == values, name


A100 = "distilbert-nvidia-a100-sxm4-40gb-1x8-fp32"
TWO_NODES, C500 = "distilbert-nvidia-a100-sxm4-40gb-2x8-fp32-bs=96", "distilbert-metax-c500-64gb-1x8-fp32"
NAMES = (A100, f"{A100}-bs=96", TWO_NODES, C500)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (A100, A100),  # although another one begins so
        ("Distilbert-METAX", C500),
        ("A100 2x8", TWO_NODES),
        ("A100 1x8 bs=96", f"{A100}-bs=96"),
        ("nvidia A100-SXM4-40GB 1x8 fp32", A100),  # all of its words, and no other
    ],
)
def test_a_result_is_found_by_its_name_or_its_words(wanted: str, name: str) -> None:
    assert find_published(wanted, NAMES) == name


@pytest.mark.parametrize(
    ("wanted", "words"),
    [("A100", "'published:A100' is ambiguous: "), ("H100", "unknown"), ("", "unknown"), (" ", "unk")],
)
def test_what_is_not_one_result_is_said(wanted: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        find_published(wanted, NAMES)
