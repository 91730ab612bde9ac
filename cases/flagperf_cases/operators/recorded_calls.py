"""Prepare the operator calls that a run has recorded.

In this order: which of them are timed and why others are not, their arguments as a text, and these arguments with
random values that the operator accepts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal

import msgspec
import torch

from flagperf.api import Argument, OperatorCall, RecordedRanks, RecordedTensor, TensorArgument, ValueRange, WordArgument

Why = Literal["collective", "unwritten", "refused", "missing", "view", "allocation", "host"]

NOT_TIMED: dict[Why, str] = {
    "collective": "a collective: it depends on the other ranks",
    "unwritten": "an argument cannot be written down",
    "refused": "what it changes is not its arguments",
    "missing": "this torch has no such operator",
    "view": "a view: it computes nothing",
    "allocation": "an allocation: it computes nothing",
    "host": "on the host, not on the device",
}

ALLOCATIONS = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
VIEWS = frozenset(
    ("_unsafe_view", "_reshape_alias", "lift_fresh", "is_same_size", "sym_size", "sym_stride", "sym_numel")
)
"""Operators that compute nothing, but whose schema does not say so."""

REFUSED = frozenset(("from_file", "set_", "resize_", "_resize_output_"))
"""What they read or change is not their arguments: nothing that a recording from elsewhere may ask for."""

_NAME = re.compile(r"(?P<namespace>\w+)::(?P<name>\w+)(?:\.(?P<overload>\w+))?")


class NotTimed(msgspec.Struct, frozen=True):
    operator: str
    why: Why
    count: int
    """Of all recorded steps."""


def find_operator(name: str) -> Any:
    """Return torch's operator with this name, or None."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    try:
        packet = getattr(getattr(torch.ops, parts["namespace"]), parts["name"])
        found = getattr(packet, parts["overload"] or "default")
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, torch._ops.OpOverload) else None


def sort_out(part: RecordedRanks) -> tuple[list[OperatorCall], list[NotTimed]]:
    """Return the calls that are timed, and the others summed up by operator and reason."""
    timed: list[OperatorCall] = []
    others: dict[tuple[str, Why], int] = {}
    for call in part.calls:
        why = why_not(call, part.tensors)
        if why is None:
            timed.append(call)
        else:
            others[call.operator, why] = others.get((call.operator, why), 0) + call.count
    return timed, [NotTimed(operator, why, count) for (operator, why), count in others.items()]


def why_not(call: OperatorCall, tensors: list[RecordedTensor]) -> Why | None:
    if call.obstacle:
        return "collective" if call.obstacle == "collective" else "unwritten"
    operator = find_operator(call.operator)
    if operator is None:
        return "missing"
    name = operator._schema.name.partition("::")[2]
    if name in REFUSED:
        return "refused"
    if name in ALLOCATIONS:
        return "allocation"
    returned = [each.alias_info for each in operator._schema.returns]
    if name in VIEWS or (returned and all(returned) and not operator._schema.is_mutable):  # a part of an argument
        return "view"
    places: set[str] = {tensors[argument.index].place for argument in tensor_arguments(call)}
    places |= {each.value for each in _flat(call) if isinstance(each, WordArgument) and each.kind == "place"}
    return "host" if places == {"host"} else None


def tensor_arguments(call: OperatorCall) -> Iterator[TensorArgument]:
    return (each for each in _flat(call) if isinstance(each, TensorArgument))


def product_dtype(call: OperatorCall, part: RecordedRanks) -> str:
    """Return the dtype of the first matrix among the arguments, or empty."""
    tensors = [part.tensors[argument.index] for argument in tensor_arguments(call)]
    return next((tensor.dtype for tensor in tensors if len(tensor.shape) > 1), "")


def _flat(call: OperatorCall) -> Iterator[Any]:
    for value in (*call.args, *call.kwargs.values()):
        yield from value if isinstance(value, list) else [value]


MAX_TEXT = 160
_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def describe(call: OperatorCall, part: RecordedRanks) -> str:
    """Write the arguments for people: `f32[1024,64], f32[64,64] stride (1,64), 0.5`."""
    positional = [_text(value, part) for value in call.args]
    named = [f"{name}={_text(value, part)}" for name, value in call.kwargs.items()]
    text = ", ".join([*positional, *named])
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4]} ..."


def _text(value: Any, part: RecordedRanks) -> str:
    if isinstance(value, list):
        texts = [_text(each, part) for each in value]
        if any(isinstance(each, TensorArgument) for each in value):  # equal neighbours once: `3x f32[64]`
            counted = [(text, len(list(group))) for text, group in groupby(texts)]
            texts = [text if count == 1 else f"{count}x {text}" for text, count in counted]
        return f"[{', '.join(texts)}]"
    if isinstance(value, TensorArgument):
        return tensor_text(part.tensors[value.index])
    if isinstance(value, WordArgument):
        return value.value
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def tensor_text(tensor: RecordedTensor) -> str:
    letters = tensor.dtype.rstrip("0123456789")
    short = _SHORT.get(letters, letters) + tensor.dtype[len(letters) :]
    host = " host" if tensor.place == "host" else ""
    packed = [math.prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape))]
    is_packed = all(
        size == 1 or have == want for size, have, want in zip(tensor.shape, tensor.stride, packed, strict=True)
    )
    strides = "" if is_packed else f" stride ({','.join(map(str, tensor.stride))})"
    return f"{short}[{','.join(map(str, tensor.shape))}]{strides}{host}"


# --- with random values -----------------------------------------------------------------------------------------------

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
    """Return the name without namespace, overload, and the marks of variants: `aten::_foreach_sqrt_.default` is
    `sqrt`."""
    name = operator.partition("::")[2].partition(".")[0]
    return name.removeprefix("_foreach").strip("_")


def make_arguments(call: OperatorCall, part: RecordedRanks, device: str, seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Draw values on the host, so that all cards compute with the same numbers. Raise AttributeError for a type that
    this torch lacks."""
    maker = _Maker(call, part.tensors, device, seed)
    args = [maker.argument(value) for value in call.args]
    return args, {name: maker.argument(value) for name, value in call.kwargs.items()}


class _Maker:
    def __init__(self, call: OperatorCall, tensors: list[RecordedTensor], device: str, seed: int) -> None:
        self._ranges = call.ranges
        self._tensors = tensors
        self._device = device
        self._generator = torch.Generator().manual_seed(seed)
        name = plain_name(call.operator)
        self._domain: Domain = "positive" if name in POSITIVE else "share" if name in SHARES else "any"
        self._num_made = 0

    def argument(self, value: Argument) -> Any:
        return [self._one(each) for each in value] if isinstance(value, list) else self._one(value)

    def _one(self, value: Any) -> Any:
        if isinstance(value, TensorArgument):
            return self._tensor(self._tensors[value.index])
        if not isinstance(value, WordArgument):
            return value
        if value.kind == "place":
            return torch.device(self._place(value.value))
        return float(value.value) if value.kind == "float" else getattr(torch, value.value)

    def _place(self, place: str) -> str:
        return self._device if place == "device" else "cpu"

    def _tensor(self, recorded: RecordedTensor) -> torch.Tensor:
        """Make a tensor with the recorded strides; elements that these leave out are there as well."""
        values = self._ranges.get(str(self._num_made))
        self._num_made += 1
        dtype = getattr(torch, recorded.dtype)
        count = held_elements(recorded)
        drawn = self._drawn(min(count, PERIOD), dtype, values).to(self._place(recorded.place))
        if count > PERIOD:
            held = torch.empty(count, dtype=dtype, device=drawn.device)
            for part in held.split(PERIOD):
                part.copy_(drawn[: part.numel()])
            drawn = held
        return drawn.as_strided(recorded.shape, recorded.stride)

    def _drawn(self, count: int, dtype: torch.dtype, values: ValueRange | None) -> torch.Tensor:
        if dtype.is_complex:
            return torch.randn(count, generator=self._generator, dtype=torch.complex64).to(dtype)
        if dtype.is_floating_point and self._domain == "any":
            return torch.randn(count, generator=self._generator).to(dtype)
        if dtype.is_floating_point:
            share = torch.rand(count, generator=self._generator)
            return (share if self._domain == "share" else share * 1.5 + 0.5).to(dtype)
        if dtype is torch.bool:
            truths = values.share if values is not None and values.share is not None else 0.5
            return torch.rand(count, generator=self._generator) < truths
        low, high = (0, 0) if values is None else (values.low, values.high)
        if high >= 0:  # a negative one among indices says that an element is ignored, and others are not allowed
            low = max(low, 0)
        drawn = torch.randint(low, high + 1, (count,), generator=self._generator)
        if values is not None and values.is_sorted and count:
            drawn = drawn.sort().values
            drawn[0], drawn[-1] = low, high  # such as the ends of sequences, the last of which is their whole length
        return drawn.to(dtype)


def held_elements(tensor: RecordedTensor) -> int:
    """Count the memory from its first to its last element."""
    if 0 in tensor.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride, strict=True))


def held_bytes(call: OperatorCall, part: RecordedRanks) -> int:
    """Count all tensor arguments of a call."""
    tensors = [part.tensors[argument.index] for argument in tensor_arguments(call)]
    return sum(held_elements(tensor) * int(getattr(torch, tensor.dtype).itemsize) for tensor in tensors)
