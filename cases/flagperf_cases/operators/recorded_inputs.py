"""The arguments of a recorded call, with random values that its operator accepts."""

from __future__ import annotations

from typing import Any, Literal

import torch

from flagperf.api import Argument, OperatorCall, RecordedRanks, RecordedTensor, TensorArgument, ValueRange, WordArgument
from flagperf_cases.operators.recorded_calls import tensor_arguments

PERIOD = (1 << 24) + 43
"""Larger tensors repeat so many drawn values. It is a prime, so that no two rows are the same."""

Domain = Literal["any", "positive", "share"]

POSITIVE = frozenset(
    (
        "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "pow", "reciprocal", "div", "addcdiv", "true_divide",
        "fused_adam", "fused_adamw", "fused_sgd", "fused_adagrad", "native_batch_norm", "cudnn_batch_norm",
        "native_batch_norm_backward", "polygamma", "lgamma", "digamma",
    )
)  # fmt: skip
"""Operators of which normal values would be no number, or infinite."""

SHARES = frozenset(
    (
        "bernoulli",
        "binary_cross_entropy",
        "binary_cross_entropy_backward",
        "multinomial",
        "logit",
        "acos",
        "asin",
        "erfinv",
    )
)
"""Operators that take probabilities."""


def plain_name(operator: str) -> str:
    """Without namespace, overload, and the marks of variants: `aten::_foreach_sqrt_.default` is `sqrt`."""
    name = operator.partition("::")[2].partition(".")[0]
    return name.removeprefix("_foreach").strip("_")


def make_arguments(call: OperatorCall, part: RecordedRanks, device: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Values are drawn on the host, so that all cards compute with the same numbers. Raises AttributeError for a type
    that this torch lacks."""
    maker = _Maker(call, part.tensors, device, seed)
    args = [maker.argument(value) for value in call.args]
    return args, {name: maker.argument(value) for name, value in call.kwargs.items()}


class _Maker:
    def __init__(self, call: OperatorCall, tensors: list[RecordedTensor], device: str, seed: int) -> None:
        self._ranges = call.ranges
        self._tensors = tensors
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)
        self._domain = _domain_of(call.operator)
        self._num_made = 0

    def argument(self, value: Argument) -> Any:
        return [self._one(each) for each in value] if isinstance(value, list) else self._one(value)

    def _one(self, value: Any) -> Any:
        if isinstance(value, TensorArgument):
            found = self._ranges.get(str(self._num_made))
            self._num_made += 1
            return self._tensor(self._tensors[value.index], found)
        return self._word(value) if isinstance(value, WordArgument) else value

    def _word(self, word: WordArgument) -> Any:
        if word.kind == "place":
            return torch.device(self._place(word.value))
        return float(word.value) if word.kind == "float" else getattr(torch, word.value)

    def _place(self, place: str) -> str:
        return self._device if place == "device" else "cpu"

    def _tensor(self, recorded: RecordedTensor, values: ValueRange | None) -> torch.Tensor:
        """With the recorded strides; elements that these leave out are there as well."""
        dtype = getattr(torch, recorded.dtype)
        count = held_elements(recorded)
        drawn = self._drawn(min(count, PERIOD), dtype, values).to(self._place(recorded.place))
        held = drawn if drawn.numel() == count else _repeated(drawn, count)
        return held.as_strided(recorded.shape, recorded.stride)

    def _drawn(self, count: int, dtype: torch.dtype, values: ValueRange | None) -> torch.Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            return self._drawn_floats(count, dtype)
        if dtype is torch.bool:
            share = values.share if values is not None and values.share is not None else 0.5
            return torch.rand(count, generator=self._generator) < share
        low, high = _allowed(values)
        drawn = torch.randint(low, high + 1, (count,), generator=self._generator)
        if values is not None and values.is_sorted and count:
            drawn = drawn.sort().values
            drawn[0], drawn[-1] = low, high  # such as the ends of sequences, the last of which is their whole length
        return drawn.to(dtype)

    def _drawn_floats(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        if dtype.is_complex:
            return torch.randn(count, generator=self._generator, dtype=torch.complex64).to(dtype)
        if self._domain == "any":
            return torch.randn(count, generator=self._generator).to(dtype)
        drawn = torch.rand(count, generator=self._generator)
        return (drawn if self._domain == "share" else drawn * 1.5 + 0.5).to(dtype)


def held_elements(tensor: RecordedTensor) -> int:
    """Of the memory from its first to its last element."""
    if 0 in tensor.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))


def held_bytes(call: OperatorCall, part: RecordedRanks) -> int:
    """Of all tensor arguments of a call."""
    tensors = [part.tensors[argument.index] for argument in tensor_arguments(call)]
    return sum(held_elements(tensor) * int(getattr(torch, tensor.dtype).itemsize) for tensor in tensors)


def _domain_of(operator: str) -> Domain:
    name = plain_name(operator)
    return "positive" if name in POSITIVE else "share" if name in SHARES else "any"


def _allowed(values: ValueRange | None) -> tuple[int, int]:
    """From the lowest to the highest value that was seen. A negative one among indices says that an element is ignored,
    and others below it are not allowed: then from 0."""
    if values is None:
        return 0, 0
    return (max(values.low, 0) if values.high >= 0 else values.low), values.high


def _repeated(drawn: torch.Tensor, count: int) -> torch.Tensor:
    result = torch.empty(count, dtype=drawn.dtype, device=drawn.device)
    for begin in range(0, count, PERIOD):
        part = result[begin : begin + PERIOD]
        part.copy_(drawn[: part.numel()])
    return result
