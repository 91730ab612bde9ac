"""The proof of a product's precision: each real product is accepted, and each that is called something else is not.

What cards compute is emulated by rounding operands or sums, which is what their matrix units do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from flagperf.testing.torch_device.device import round_to_tf32
from flagperf.worker import WrongOutput
from flagperf_cases.gemm.case import Multiplied, Product, make_product, multiply_in_turns, prove
from flagperf_cases.gemm.data import Shape

SHAPE = Shape(96, 160, 1024)
"""Not square: the probe has to fit."""

Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def truncate_to_tf32(values: torch.Tensor) -> torch.Tensor:
    return (values.view(torch.int32) & (-1 << 13)).view(torch.float32)


def rounded_to_tf32(values: torch.Tensor) -> torch.Tensor:
    torch.set_float32_matmul_precision("high")
    try:
        rounded: torch.Tensor = round_to_tf32(values)
        return rounded
    finally:
        torch.set_float32_matmul_precision("highest")


def in_blocks(size: int) -> Multiply:
    """The sum of so many terms is exact; what was added up so far is kept in float16."""

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[1])
        for left, right in zip(a.split(size, 1), b.split(size), strict=True):
            total = (total + left.float() @ right.float()).half().float()
        return total.half()

    return multiply


WAYS: dict[str, Multiply] = {
    "float64 of rounded operands": lambda a, b: a.float().double() @ b.float().double(),
    "float64": lambda a, b: (a.double() @ b.double()).to(a.dtype),
    "float32": lambda a, b: (a.float() @ b.float()).to(a.dtype),
    "tf32": lambda a, b: rounded_to_tf32(a) @ rounded_to_tf32(b),
    "truncated tf32": lambda a, b: truncate_to_tf32(a) @ truncate_to_tf32(b),
    "bfloat16": lambda a, b: (a.bfloat16().float() @ b.bfloat16().float()).to(a.dtype),
    "float16": lambda a, b: (a.half().float() @ b.half().float()).to(a.dtype),
    "float16 sums": in_blocks(16),
    "float16 sums, one by one": in_blocks(1),
}


def product_of(precision: str, way: str) -> Product:
    """As a card would compute it that multiplies this way, whatever it calls that."""
    made = make_product(precision, SHAPE, "cpu", seed=3)
    call = multiply_in_turns(lambda a: WAYS[way](a, made.b), made.numbers, SHAPE)
    return Product(call, made.numbers, made.b)


@pytest.mark.parametrize(
    ("precision", "way"),
    [
        ("fp64", "float64"),
        ("fp32", "float32"),
        ("fp32", "float64"),
        ("tf32", "tf32"),
        ("tf32", "truncated tf32"),
        ("fp16", "float32"),
        ("bf16", "float32"),
        ("fp16_acc16", "float16 sums"),
        ("fp16_acc16", "float16 sums, one by one"),
    ],
)
def test_a_product_in_its_precision_is_accepted(precision: str, way: str) -> None:
    product = product_of(precision, way)
    facts = prove(precision, product, product.call())
    assert facts.keys() >= {"accepted"}


@pytest.mark.parametrize(
    ("precision", "way", "words"),
    [
        ("fp64", "float32", "not computed in fp64"),
        ("fp64", "float64 of rounded operands", "not computed in fp64"),
        ("fp32", "tf32", "the error is that of tf32"),
        ("fp32", "truncated tf32", "the error is that of tf32"),
        ("fp32", "bfloat16", "the error is that of bf16"),
        ("fp32", "float16", "not computed in fp32"),
        ("tf32", "float32", "probe exact); the error is that of fp32"),
        ("tf32", "bfloat16", "the error is that of bf16"),
        ("fp16", "bfloat16", "not computed in fp16"),
        ("fp16", "float16 sums", "the error is that of fp16_acc16"),
        ("fp16", "float16 sums, one by one", "the error is that of fp16_acc16"),
        ("fp16_acc16", "float32", "not computed in fp16_acc16"),
        ("fp16_acc16", "bfloat16", "probe rounded"),
    ],
)
def test_a_product_in_another_precision_is_refused(precision: str, way: str, words: str) -> None:
    product = product_of(precision, way)
    with pytest.raises(WrongOutput) as caught:
        prove(precision, product, product.call())
    assert words in str(caught.value)


def test_fp32_that_rounds_only_some_operands_is_told_by_the_probe() -> None:
    """The random operands happen to be short, so that their product is exact; the probe is not."""
    made = make_product("fp32", SHAPE, "cpu", seed=3)
    made.numbers.copy_(made.numbers.bfloat16())
    made.b.copy_(made.b.bfloat16())
    product = Product(multiply_in_turns(lambda a: WAYS["tf32"](a, made.b), made.numbers, SHAPE), made.numbers, made.b)
    with pytest.raises(WrongOutput, match="probe rounded"):
        prove("fp32", product, product.call())


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "fp8", "int8"])
def test_what_torch_computes_here_is_accepted(precision: str) -> None:
    product = make_product(precision, SHAPE, "cpu", seed=3)
    prove(precision, product, product.call())


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "fp8"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_value_that_is_not_finite_is_refused(precision: str, value: float) -> None:
    product = make_product(precision, SHAPE, "cpu", seed=3)
    last = product.call()
    last.output[SHAPE.m - 1, SHAPE.n - 1] = value
    with pytest.raises(WrongOutput, match="not finite"):
        prove(precision, product, last)


def test_one_wrong_integer_is_refused() -> None:
    product = make_product("int8", Shape(64, 160, 1024), "cpu", seed=3)
    last = product.call()
    last.output[63, 159] += 1
    with pytest.raises(WrongOutput, match="1 of 10240 integers are wrong"):
        prove("int8", product, last)


def test_fp8_with_a_forgotten_scale_is_refused() -> None:
    product = make_product("fp8", SHAPE, "cpu", seed=3)
    output, a = product.call()
    with pytest.raises(WrongOutput, match="not computed in fp8"):
        prove("fp8", product, Multiplied(output / product.scale, a))


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "fp8", "int8"])
def test_an_output_that_was_never_written_is_refused(precision: str) -> None:
    product = make_product(precision, SHAPE, "cpu", seed=3)
    output, a = product.call()
    with pytest.raises(WrongOutput):
        prove(precision, product, Multiplied(torch.zeros_like(output), a))


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "fp8", "int8"])
def test_what_the_first_call_left_is_refused_after_any_number_of_calls(precision: str) -> None:
    product = make_product(precision, SHAPE, "cpu", seed=3)
    first = product.call().output.clone()
    for _ in range(16):
        with pytest.raises(WrongOutput):
            prove(precision, product, Multiplied(first, product.call().a))


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "fp8", "int8"])
def test_no_call_allocates_an_output(precision: str) -> None:
    product = make_product(precision, SHAPE, "cpu", seed=3)
    assert len({product.call().output.data_ptr() for _ in range(3)}) == 1


def test_fp8_of_a_torch_that_cannot_write_into_an_output_allocates_it_and_says_so() -> None:
    real = torch._scaled_mm

    def without_output(*arguments: Any, out: torch.Tensor | None = None, **settings: Any) -> torch.Tensor:
        if out is not None:
            raise NotImplementedError("aten::_scaled_mm.out")
        return real(*arguments, **settings)

    with mock.patch("torch._scaled_mm", without_output):
        product = make_product("fp8", SHAPE, "cpu", seed=3)
        prove("fp8", product, product.call())
    assert product.facts()["output"] == "allocated by the call"


@pytest.mark.parametrize("precision", ["fp64", "fp32", "fp16", "bf16", "int8"])
def test_operands_are_random_and_the_same_for_a_seed(precision: str) -> None:
    one, same, other = (make_product(precision, SHAPE, "cpu", seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.numbers, same.numbers) and not torch.equal(one.numbers, other.numbers)
    assert one.numbers.double().std() > 0.9 and abs(float(one.numbers.double().mean())) < 1


def test_fp64_has_numbers_that_float32_does_not_have() -> None:
    product = make_product("fp64", SHAPE, "cpu", seed=3)
    for operand in (product.numbers, product.b):
        assert float((operand != operand.float().double()).double().mean()) > 0.99
