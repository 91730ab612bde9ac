"""gemm on the CPU: what is measured, and which values are refused."""

from __future__ import annotations

import itertools
from unittest import mock

import torch
from case_harness import CaseHarness, rows

from flagperf_cases.gemm.data import Shape, planned_shapes

CASE = CaseHarness("gemm")


def test_every_precision_is_a_row_and_one_that_is_missing_says_so() -> None:
    found = {row.labels["precision"]: row for row in rows(CASE.run(CASE.quick()))}
    assert list(found) == ["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
    assert {name for name, row in found.items() if row.status != "ok"} == {"tf32"}
    assert found["tf32"].status == "unsupported" and "does not support precision tf32" in found["tf32"].problem
    assert {row.work["flops"] for name, row in found.items() if name != "tf32"} == {2 * 64 * 96 * 256}
    assert {name: row.limits["flops"] for name, row in found.items() if name != "tf32"} == {
        name: name for name in found if name != "tf32"
    }
    assert found["int8"].facts["layout"] == found["fp8"].facts["layout"] == "NT"
    assert {row.facts["float32_matmul_precision"] for name, row in found.items() if name != "tf32"} == {"highest"}
    assert found["fp32"].facts["layout"] == "NN" and found["fp32"].facts["probe"] == "exact"


def test_fp8_says_how_it_is_scaled_and_added_up() -> None:
    (row,) = rows(CASE.run(CASE.quick(gemm__precisions=["fp8"])))
    stated = {"scaling": "per tensor", "fast_accumulation": "off", "output": "exists before the call"}
    assert row.facts.items() >= stated.items()


def test_calls_that_do_nothing_after_the_first_are_found() -> None:
    real, calls = torch.mm, itertools.count()

    def only_once(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return out if next(calls) else real(a, b, out=out)

    with mock.patch("torch.mm", only_once):
        row, other = rows(CASE.run(CASE.quick(gemm__precisions=["fp32", "int8"])))
    assert other.status == "ok"
    assert row.status == "invalid" and "not computed in fp32" in row.problem


def test_sums_in_fp16_have_a_label_of_their_own_that_this_torch_does_not_earn() -> None:
    _, row = rows(CASE.run(CASE.quick(gemm__precisions=["fp16", "fp16_acc16"])))
    assert row.status == "invalid" and "not computed in fp16_acc16" in row.problem


def test_what_would_take_half_of_the_hosts_memory_is_out_of_memory_and_the_next_row_runs() -> None:
    changes = {"gemm__precisions": ["fp32"], "gemm__shapes": ["1024x1024x1024"]}
    small, large = rows(CASE.run(CASE.quick(**changes), memory_bytes=8 << 20))
    assert small.status == "ok"
    assert large.status == "out_of_memory" and "more than half of the host's" in large.problem


def test_a_shape_is_measured_once_in_the_first_class_that_has_it() -> None:
    given = {"headline": "8x8x8", "shapes": ["4x4x4", "8x8x8", "4x4x4"], "tuned_shapes": ["4x4x4", "2x2x2"]}
    assert planned_shapes({"gemm": given}) == {
        "headline": [Shape(8, 8, 8)], "standard": [Shape(4, 4, 4)], "tuned": [Shape(2, 2, 2)],
    }  # fmt: skip


def test_a_tuned_shape_says_so_and_is_never_the_headline() -> None:
    changes = {"gemm__tuned_shapes": ["32x32x32"], "gemm__precisions": ["fp32"]}
    found = {row.labels["shape"]: row.labels["class"] for row in rows(CASE.run(CASE.quick(**changes)))}
    assert found == {"64x96x256": "headline", "32x32x32": "tuned"}
    assert {figure.where["class"] for figure in CASE.manifest().figures} == {"headline"}
