"""Make tensors with seeded random values. Values are drawn on the host, so that all cards compute with the same
numbers."""

from __future__ import annotations

import math

import torch

from flagperf_cases.operators.operator import TORCH_NAMES, Operand

PERIOD = (1 << 24) + 43
"""Larger tensors repeat so many drawn values: the host would draw 2**30 of them for minutes. It is a prime, so that no
two rows are the same."""

FP8_LARGEST = 448.0


def make_tensor(operand: Operand, row_dtype: str, device: str, seed: int) -> torch.Tensor:
    """Return a tensor in the operand's layout, filled with what its draw gives."""
    generator = torch.Generator().manual_seed(seed)
    dtype, shape = operand.dtype_of(row_dtype), operand.shape
    is_whole = operand.draw == "normal" and dtype.startswith(("int", "uint"))

    def filled(shape: tuple[int, ...]) -> torch.Tensor:
        count = math.prod(shape)
        values = draw("whole" if is_whole else operand.draw, min(count, PERIOD), operand.high, generator)
        if dtype == "fp8":
            values = values * (FP8_LARGEST / values.abs().max())
        drawn = values.to(getattr(torch, TORCH_NAMES[dtype])).to(device)
        return (drawn if drawn.numel() == count else repeat(drawn, operand.draw, count)).view(shape)

    match operand.layout:
        case "contiguous":
            return filled(shape)
        case "transposed":
            return filled((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)
        case "every_other":
            return filled((*shape[:-1], 2 * shape[-1]))[..., ::2]
        case "broadcast":  # one row, read as all rows
            return filled((1, *shape[1:])).expand(shape)
        case "channels_last":
            return filled(shape).contiguous(memory_format=torch.channels_last)
    raise ValueError(f"unknown layout {operand.layout}")


def repeat(drawn: torch.Tensor, name: str, count: int) -> torch.Tensor:
    """Return `count` numbers: the drawn ones again and again, with other signs where sums or products overflow."""
    result = torch.empty(count, dtype=drawn.dtype, device=drawn.device)
    for number, part in enumerate(result.split(drawn.numel())):
        again = drawn[: part.numel()]
        if name == "normal" and number % 2:
            again = -again  # sums of repeated numbers would be larger than those of drawn ones, and overflow in fp16
        elif name == "factors" and number:
            again = again.sign()  # a power of a product overflows
        part.copy_(again)
    return result


def draw(name: str, count: int, high: int, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers. `high` is the operand's: whole numbers are below it."""

    def positive() -> torch.Tensor:
        """Draw from 0.5 to 2: no overflow in roots, reciprocals and powers."""
        return torch.rand(count, generator=generator) * 1.5 + 0.5

    def signs() -> torch.Tensor:
        return torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1

    match name:
        case "normal":
            return torch.randn(count, generator=generator)
        case "small":  # as the weights of a model are initialised: products with activations stay of their size
            return torch.randn(count, generator=generator) * 0.02
        case "uniform":
            return torch.rand(count, generator=generator)
        case "positive":
            return positive()
        case "nonzero":
            return positive() * signs()
        case "levels":  # a few whole numbers, so that many are equal
            return torch.randint(-8, 9, (count,), generator=generator)
        case "special":
            values = torch.randn(count, generator=generator)
            which = torch.randint(0, 64, (count,), generator=generator)
            values[which == 0] = math.nan
            values[which == 1] = math.inf
            values[which == 2] = -math.inf
            return values
        case "factors":  # signs, and 64 from 0.5 to 2: a product of normal values underflows, and anything is right
            values = signs()
            places = torch.arange(0, count, max(count // 64, 1))[:64]
            values[places] *= torch.exp2(torch.rand(len(places), generator=generator) * 2 - 1)
            return values
        case "whole":
            return torch.randint(-127, 128, (count,), generator=generator)
        case "bits":
            return torch.randint(-(1 << 31), 1 << 31, (count,), generator=generator)
        case "indices":
            return torch.randint(0, high, (count,), generator=generator)
        case "zipf":  # as the words of a language come: the number i with a probability of about 1 / i
            spread = torch.rand(count, generator=generator, dtype=torch.float64)
            return (high**spread - 1).long().clamp(max=high - 1)
        case "permutation":
            return torch.randperm(count, generator=generator)
        case "truths":  # numbers that are not zero, but for one in `high` on average (0: none)
            values = torch.randint(1, 100, (count,), generator=generator)
            if high:
                values[torch.randint(0, high, (count,), generator=generator) == 0] = 0
            return values
    raise ValueError(f"unknown draw {name}")
