"""One row, made real: its tensors, the call that is timed, and the check of the output that was timed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flagperf.errors import Unsupported
from flagperf.worker import WrongOutput
from flagperf_cases.operators.draws import make_tensor
from flagperf_cases.operators.implementations import Implementation, noticing_fallbacks
from flagperf_cases.operators.operator import TORCH_NAMES, Operand
from flagperf_cases.operators.rows import Row

CHECKED_ELEMENTS = 1 << 22
"""Of a row that can be cut, parts with about so many elements are checked, at least one. The host would compute the
whole of the largest for minutes."""
MIN_PARTS = 64
"""At least, where these have not many times as many elements."""

SEED = 20240501


class Operands:
    """The tensors of a row, made when the first implementation asks for them."""

    def __init__(self, row: Row, device: str) -> None:
        self.row, self.device = row, device

    @functools.cached_property
    def tensors(self) -> list[torch.Tensor]:
        return [
            make_tensor(operand, self.row.dtype, self.device, SEED + index)
            for index, operand in enumerate(self.row.operator.operands(**self.row.sizes))
        ]

    @functools.cached_property
    def gradients(self) -> list[torch.Tensor]:
        """Of the outputs: random, like the operands."""
        return [
            make_tensor(Operand(output.shape, output.dtype), self.row.dtype, self.device, SEED + 100 + index)
            for index, output in enumerate(self.row.operator.outputs_of(self.row.sizes))
        ]

    @functools.cached_property
    def originals(self) -> list[torch.Tensor]:
        """Copies, where the operator changes its operands."""
        return [each.clone() for each in self.tensors] if self.row.operator.mutates else self.tensors


class Measured:
    """An implementation of the operator with the operands of a row."""

    def __init__(self, row: Row, operands: Operands, implementation: Implementation) -> None:
        self.row, self.operator = row, row.operator
        self.implementation = implementation
        self.originals, self.operands = operands.originals, operands.tensors
        self.options = self.operator.options_of(row.sizes)
        self.fallbacks: list[str] = []
        self.gradients = operands.gradients if row.direction == "backward" else []
        implementation.refuse(self.operator, lambda: self._call_of(self.operator.call)())

    # --- what is timed ----------------------------------------------------------------------------------------------

    def call(self) -> Callable[[], Any]:
        with self.within():
            return self._call_of(self.implementation.function(self.operator))

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        with noticing_fallbacks(self.fallbacks), self.implementation.enabled():
            yield

    def restore(self) -> None:
        for operand, original in zip(self.operands, self.originals, strict=True):
            operand.copy_(original)

    def _call_of(self, function: Callable[..., Any]) -> Callable[[], Any]:
        if self.row.direction == "forward":
            return functools.partial(function, *self.operands, **self.options)
        return self._backward_of(function)

    def _backward_of(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """Forward runs once, here: its graph is kept, and only gradients are computed in every call."""
        wanted = self.operator.gradients_of(self.row.sizes)
        leaves = [each.detach().requires_grad_(index in wanted) for index, each in enumerate(self.operands)]
        results = _tensors(function(*leaves, **self.options))
        inputs = [leaves[index] for index in wanted]
        return functools.partial(torch.autograd.grad, results, inputs, self.gradients, retain_graph=True)

    # --- what is checked --------------------------------------------------------------------------------------------

    def check(self, output: Any) -> dict[str, str]:
        """Facts about the comparison. Raises WrongOutput."""
        if self.fallbacks:
            raise Unsupported(f"it falls back to the host: {self.fallbacks[0]}")
        found = _tensors(output)
        self._check_form(found)
        parts = self._parts(found)
        cut = self.operator.cut
        operands = [
            _on_host(each, cut.dim if cut else 0, parts if cut and index in cut.operands else None)
            for index, each in enumerate(self.originals)
        ]
        compared = [_on_host(each, cut.dim if cut else 0, parts) for each in found]
        with torch.no_grad():
            expected = self._expected(operands, parts)
        rule = self.operator.backward_rule if self.row.direction == "backward" else self.operator.rule
        assert rule is not None
        terms = self.operator.terms_of(self.row.sizes, self.row.direction)
        judgements = [rule.judge(*pair, operands, terms) for pair in zip(compared, expected, strict=True)]
        for judgement in judgements:
            if judgement.problem:
                raise WrongOutput(f"{judgement.problem}; allowed: {judgement.allowed}")
        worst = max(judgements, key=lambda each: each.error)
        whole, some = (sum(each.numel() for each in group) for group in (found, compared))
        version = {"version": self.implementation.version} if self.implementation.version else {}
        return {
            "error": f"{worst.error:.3g} of the tolerance",
            "tolerance": worst.allowed,
            "checked": f"{some} of {whole} elements",
            **version,
        }

    def _check_form(self, found: tuple[torch.Tensor, ...]) -> None:
        if self.row.direction == "backward":
            wanted = [self.operands[index] for index in self.operator.gradients_of(self.row.sizes)]
            forms = [(tuple(each.shape), each.dtype) for each in wanted]
        else:
            outputs = self.operator.outputs_of(self.row.sizes)
            forms = [(each.shape, getattr(torch, TORCH_NAMES[each.dtype_of(self.row.dtype)])) for each in outputs]
        if len(found) != len(forms):
            raise WrongOutput(f"{len(found)} outputs in place of {len(forms)}")
        for tensor, (shape, dtype) in zip(found, forms, strict=True):
            if (tuple(tensor.shape), tensor.dtype) != (shape, dtype):
                raise WrongOutput(f"an output is {tuple(tensor.shape)} {tensor.dtype}, not {shape} {dtype}")
            if tensor.device != self.operands[0].device:
                raise WrongOutput(f"an output is on {tensor.device}: the operator fell back to the host")

    def _parts(self, found: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
        """Which parts are checked: always the last, mostly the first, and others between them. None: all."""
        cut = self.operator.cut
        if cut is None or not found[0].ndim:
            return None
        gradients = self.operator.gradients_of(self.row.sizes)
        if self.row.direction == "backward" and set(gradients) - set(cut.operands):
            return None  # a weight's gradient is a sum over all parts
        pieces = [*found, *(self.operands[index] for index in cut.operands)]
        count = min(each.shape[cut.dim] for each in pieces)
        size = max(sum(each.numel() for each in pieces) // count, 1)
        wanted = max(CHECKED_ELEMENTS // size, MIN_PARTS if MIN_PARTS * size <= 4 * CHECKED_ELEMENTS else 1)
        if wanted >= count:
            return None
        inner = torch.randint(0, count, (wanted - 1,), generator=torch.Generator().manual_seed(SEED))
        return torch.cat((inner, torch.tensor([0] * (wanted > 1) + [count - 1]))).unique()

    def _expected(self, operands: list[Any], parts: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        if self.operator.is_random:
            return tuple(operands[:1])
        widened = [_widened(each) if self._widens(each) else each for each in operands]
        function = self.operator.reference or self.operator.call
        if self.row.direction == "forward":
            return _tensors(function(*widened, **self.options))
        wanted = self.operator.gradients_of(self.row.sizes)
        cut = self.operator.cut
        gradients = [_widened(_on_host(each, cut.dim if cut else 0, parts)) for each in self.gradients]
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_(index in wanted) for index, each in enumerate(widened)]
            results = _tensors(function(*leaves, **self.options))
            return tuple(torch.autograd.grad(results, [leaves[index] for index in wanted], gradients))

    def _widens(self, operand: torch.Tensor) -> bool:
        is_backward = self.row.direction == "backward"
        return operand.dtype.is_floating_point and (self.operator.widens or is_backward)


def _tensors(output: Any) -> tuple[torch.Tensor, ...]:
    return (output,) if isinstance(output, torch.Tensor) else tuple(output)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype.is_floating_point else tensor


def _on_host(tensor: torch.Tensor, dim: int, parts: torch.Tensor | None) -> torch.Tensor:
    """A part of a tensor that has more along this dimension than others has as many times more in each part."""
    found = tensor.detach()
    if parts is not None:
        size = found.shape[dim] // (int(parts[-1]) + 1)
        index = (parts[:, None] * size + torch.arange(size)).flatten()
        found = found.index_select(dim, index.to(found.device))
    return found.cpu()
