"""Judge when an output is right, by rules that are derived and stated. Importable without torch; `judge` needs it.

A rule compares one output, on the host, with the float64 reference of the same operands. eps is the distance from 1 to
the next number of a dtype. The statement of the rule goes into the row with the error that was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    import torch

WALK = 8.0
"""Rounding errors of n additions add up like a random walk, to about sqrt(n) / 2 times eps of the partial sums; the
largest of a billion of such sums is 6 standard deviations out. 8 covers that with room for the order of additions."""

DEVIATIONS = 6.0
"""Of a statistic of random numbers from its expectation: once in 500 million checks by chance."""


class Judgement(msgspec.Struct, frozen=True):
    error: float
    """The largest error over what is allowed: above 1 is wrong."""
    allowed: str
    """The rule with its figures."""
    problem: str = ""
    """What is wrong, and where."""


class Rule(Protocol):
    def judge(self, found: torch.Tensor, expected: torch.Tensor, operands: list[Any], terms: int) -> Judgement: ...


class Exact(msgspec.Struct, frozen=True):
    """Requires every element to be equal: comparisons, bits, indices, copies and whole numbers. NaN equals NaN."""

    def judge(self, found: torch.Tensor, expected: torch.Tensor, operands: list[Any], terms: int) -> Judgement:
        import torch

        same = found == expected.to(found.dtype)
        if found.dtype.is_floating_point:
            same |= torch.isnan(found) & torch.isnan(expected)
        num_wrong = int((~same).sum())
        problem = ""
        if num_wrong:
            first = int((~same).flatten().int().argmax())
            problem = f"{num_wrong} of {same.numel()} elements differ, the first is element {first}"
        return Judgement(float(num_wrong), "exact", problem)


EXACT = Exact()


class Rounding(msgspec.Struct, frozen=True):
    """|found - expected| <= ulps * eps(output) * |expected| + (inner + 8 * sqrt(terms)) * eps(compute) * s

    The first term is the rounding of the output; the second is what the operator rounds on the way, in fp32 where the
    output has 16 bits: `inner` roundings, and sums of `terms` products or numbers. s is the size of the numbers in
    which that happens. Whole numbers have to be exact.
    """

    ulps: float = 2
    inner: float = 4
    scale: str | Callable[..., float] = "result"
    """s: `result`, the element itself; `rms` or `max`, of all elements; or (*operands) -> s."""
    saved: bool = False
    """Numbers that the operator reads were rounded to the dtype of the row: the first term also has s for |expected|.
    """

    def judge(self, found: torch.Tensor, expected: torch.Tensor, operands: list[Any], terms: int) -> Judgement:
        import torch

        if not found.dtype.is_floating_point:
            return EXACT.judge(found, expected, operands, terms)
        rounded, compute = torch.finfo(found.dtype), torch.finfo(torch.float32)
        expected = expected.double()
        scale, scale_text = self._scale(expected, operands)
        walk = WALK * math.sqrt(terms) if terms > 1 else 0.0
        size = expected.abs()
        if self.saved:
            size = size + scale
        # Cards may flush what is below the smallest normal number. In fp16 that is not small, and is not accepted.
        smallest = rounded.smallest_normal * (rounded.eps if found.dtype == torch.float16 else 1)
        allowed = self.ulps * rounded.eps * size + (self.inner + walk) * compute.eps * scale + self.ulps * smallest
        error = ((found.double() - expected).abs() / allowed).nan_to_num(nan=math.inf)
        # Infinite in both, also where only the dtype of the output overflows; or no number in both.
        error[(found.isinf() & (found == expected.to(found.dtype))) | (found.isnan() & expected.isnan())] = 0.0
        largest = float(error.max()) if error.numel() else 0.0
        dtype = str(found.dtype).removeprefix("torch.")
        text = f"{self.ulps:g} eps({dtype}) |r|{' + s' if self.saved else ''}"
        text += f" + {self.inner + walk:.3g} eps(float32) s, s = {scale_text}"
        problem = ""
        if largest > 1:
            place = int(error.argmax())
            got, right = float(found.flatten()[place]), float(expected.flatten()[place])
            problem = f"{int((error > 1).sum())} of {error.numel()} elements differ too much"
            problem += f"; the worst, {place}, is {got:.6g} and not {right:.6g}"
        return Judgement(largest, text, problem)

    def _scale(self, expected: torch.Tensor, operands: list[Any]) -> tuple[Any, str]:
        """Return s, and how the rule states it."""
        if callable(self.scale):
            scale = float(self.scale(*operands))
            return scale, f"{scale:.3g}"
        if self.scale == "result":
            return expected.abs(), "|r|"
        finite = expected[expected.isfinite()]
        scale = 0.0
        if finite.numel():
            scale = float(finite.square().mean().sqrt() if self.scale == "rms" else finite.abs().max())
        return scale, f"{self.scale} of r = {scale:.3g}"


class Order(msgspec.Struct, frozen=True):
    """Judges indices that sort or select: equal numbers may come in any order. The indices have to be different within
    a row, and the numbers there exactly those that the reference selects. `operands[0]` is what is sorted, along its
    last dimension."""

    def judge(self, found: torch.Tensor, expected: torch.Tensor, operands: list[Any], terms: int) -> Judgement:
        import torch

        source = operands[0]
        indices, right = (each.reshape(source.shape[0], -1) for each in (found, expected))
        outside = (indices < 0) | (indices >= source.shape[-1])
        if outside.any():
            return Judgement(math.inf, "order", f"{int(outside.sum())} indices are outside the row")
        repeated = indices.sort(dim=-1).values.diff(dim=-1) == 0
        differs = torch.gather(source, -1, indices) != torch.gather(source, -1, right)
        num_wrong = int(repeated.sum()) + int(differs.sum())
        problem = "" if not num_wrong else f"{num_wrong} of {indices.numel()} indices are repeated or select others"
        return Judgement(float(num_wrong), "order: the selected numbers are exact, equal ones in any order", problem)


class Statistics(msgspec.Struct, frozen=True):
    """Judges random numbers: each of some statistics is within 6 standard deviations of its expectation."""

    of: Callable[..., dict[str, tuple[float, float, float]]]
    """(output, *operands) -> statistic -> found, expected, its standard deviation."""

    def judge(self, found: torch.Tensor, expected: torch.Tensor, operands: list[Any], terms: int) -> Judgement:
        worst, problem = 0.0, ""
        for name, (value, right, deviation) in self.of(found, *operands).items():
            limit = DEVIATIONS * deviation
            if not abs(value - right) <= limit:
                problem = problem or f"{name} is {value:.6g}, expected {right:.6g} +- {limit:.2g}"
                worst = math.inf
            elif limit:
                worst = max(worst, abs(value - right) / limit)
        return Judgement(worst, f"statistics within {DEVIATIONS:g} standard deviations", problem)
