"""Make tensors with seeded random values. Values are drawn on the host, so that all cards compute with the same
numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from flagperf_cases.operators.operator import TORCH_NAMES, Operand

PERIOD = (1 << 24) + 43
"""Larger tensors repeat so many drawn values: the host would draw 2**30 of them for minutes. It is a prime, so that no
two rows are the same."""

FP8_LARGEST = 448.0

Draw = Callable[[torch.Generator, int, Operand], torch.Tensor]


def make_tensor(operand: Operand, row_dtype: str, device: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    dtype = operand.dtype_of(row_dtype)
    make_layout = LAYOUTS[operand.layout]

    def filled(shape: tuple[int, ...]) -> torch.Tensor:
        count = math.prod(shape)
        drawn = _drawn(operand, dtype, generator, min(count, PERIOD)).to(device)
        return _repeated(drawn, count, REPEATS.get(operand.draw, _again)).view(shape)

    return make_layout(operand.shape, filled)


def _drawn(operand: Operand, dtype: str, generator: torch.Generator, count: int) -> torch.Tensor:
    draw = operand.draw
    if draw == "normal" and (dtype.startswith("int") or dtype == "uint8"):
        draw = "whole"
    values = DRAWS[draw](generator, count, operand)
    if dtype == "fp8":
        values = values * (FP8_LARGEST / values.abs().max())
    return values.to(getattr(torch, TORCH_NAMES[dtype]))


def _again(drawn: torch.Tensor, number: int) -> torch.Tensor:
    return drawn


def _of_both_signs(drawn: torch.Tensor, number: int) -> torch.Tensor:
    """Sums of repeated numbers would be larger than those of drawn ones, and overflow in fp16."""
    return -drawn if number % 2 else drawn


def _signs_alone(drawn: torch.Tensor, number: int) -> torch.Tensor:
    """A power of a product overflows."""
    return drawn.sign() if number else drawn


REPEATS = {"normal": _of_both_signs, "factors": _signs_alone}
"""Draw -> the drawn numbers, when they are used once more; all others are used as they are."""


def _repeated(drawn: torch.Tensor, count: int, repeat: Callable[[torch.Tensor, int], torch.Tensor]) -> torch.Tensor:
    if drawn.numel() == count:
        return drawn
    result = torch.empty(count, dtype=drawn.dtype, device=drawn.device)
    for number, part in enumerate(result.split(drawn.numel())):
        part.copy_(repeat(drawn[: part.numel()], number))
    return result


# --- values ---------------------------------------------------------------------------------------------------------


def _normal(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return torch.randn(count, generator=generator)


def _small(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw numbers as the weights of a model are initialised: products with activations stay of their size."""
    return torch.randn(count, generator=generator) * 0.02


def _uniform(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return torch.rand(count, generator=generator)


def _positive(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw from 0.5 to 2: no overflow in roots, reciprocals and powers."""
    return torch.rand(count, generator=generator) * 1.5 + 0.5


def _nonzero(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return _positive(generator, count, operand) * _signs(generator, count)


def _levels(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw a few whole numbers, so that many are equal."""
    return torch.randint(-8, 9, (count,), generator=generator)


def _special(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw normal values, with some infinities and some that are no number."""
    values = torch.randn(count, generator=generator)
    which = torch.randint(0, 64, (count,), generator=generator)
    values[which == 0] = math.nan
    values[which == 1] = math.inf
    values[which == 2] = -math.inf
    return values


def _factors(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw signs, and 64 numbers from 0.5 to 2: a product of normal values underflows, and any implementation is
    right."""
    values = _signs(generator, count)
    places = torch.arange(0, count, max(count // 64, 1))[:64]
    values[places] *= torch.exp2(torch.rand(len(places), generator=generator) * 2 - 1)
    return values


def _signs(generator: torch.Generator, count: int) -> torch.Tensor:
    return torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1


def _whole(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return torch.randint(-127, 128, (count,), generator=generator)


def _bits(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return torch.randint(-(1 << 31), 1 << 31, (count,), generator=generator)


def _indices(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return torch.randint(0, operand.high, (count,), generator=generator)


def _zipf(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw as the words of a language come: the number i with a probability of about 1 / i."""
    spread = torch.rand(count, generator=generator, dtype=torch.float64)
    return (operand.high**spread - 1).long().clamp(max=operand.high - 1)


def _permutation(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    return torch.randperm(count, generator=generator)


def _truths(generator: torch.Generator, count: int, operand: Operand) -> torch.Tensor:
    """Draw numbers that are not zero, but for one in `high` on average (0: none)."""
    values = torch.randint(1, 100, (count,), generator=generator)
    if operand.high:
        values[torch.randint(0, operand.high, (count,), generator=generator) == 0] = 0
    return values


DRAWS: dict[str, Draw] = {
    "normal": _normal,
    "small": _small,
    "uniform": _uniform,
    "positive": _positive,
    "nonzero": _nonzero,
    "levels": _levels,
    "special": _special,
    "factors": _factors,
    "whole": _whole,
    "bits": _bits,
    "indices": _indices,
    "zipf": _zipf,
    "permutation": _permutation,
    "truths": _truths,
}


# --- layouts --------------------------------------------------------------------------------------------------------

Filled = Callable[[tuple[int, ...]], torch.Tensor]


def _transposed(shape: tuple[int, ...], filled: Filled) -> torch.Tensor:
    return filled((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)


def _every_other(shape: tuple[int, ...], filled: Filled) -> torch.Tensor:
    return filled((*shape[:-1], 2 * shape[-1]))[..., ::2]


def _broadcast(shape: tuple[int, ...], filled: Filled) -> torch.Tensor:
    """Make one row, read as all rows."""
    return filled((1, *shape[1:])).expand(shape)


def _channels_last(shape: tuple[int, ...], filled: Filled) -> torch.Tensor:
    return filled(shape).contiguous(memory_format=torch.channels_last)


LAYOUTS: dict[str, Callable[[tuple[int, ...], Filled], torch.Tensor]] = {
    "contiguous": lambda shape, filled: filled(shape),
    "transposed": _transposed,
    "every_other": _every_other,
    "broadcast": _broadcast,
    "channels_last": _channels_last,
}
