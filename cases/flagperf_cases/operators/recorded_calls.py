"""Which recorded calls are timed, and why others are not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
import torch

from flagperf.api import OperatorCall, RecordedRanks, RecordedTensor, TensorArgument, WordArgument

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
    """torch's operator with this name, or None."""
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
    """The calls that are timed, and the others summed up by operator and reason."""
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
    if name in VIEWS or _is_view(operator):
        return "view"
    places = {*(tensors[argument.index].place for argument in tensor_arguments(call)), *_places(call)}
    return "host" if places == {"host"} else None


def tensor_arguments(call: OperatorCall) -> Iterator[TensorArgument]:
    return (each for each in _flat(call) if isinstance(each, TensorArgument))


def product_dtype(call: OperatorCall, part: RecordedRanks) -> str:
    """Of the first matrix among the arguments, or empty."""
    tensors = [part.tensors[argument.index] for argument in tensor_arguments(call)]
    return next((tensor.dtype for tensor in tensors if len(tensor.shape) > 1), "")


def _places(call: OperatorCall) -> Iterator[str]:
    return (each.value for each in _flat(call) if isinstance(each, WordArgument) and each.kind == "place")


def _flat(call: OperatorCall) -> Iterator[Any]:
    for value in (*call.args, *call.kwargs.values()):
        yield from value if isinstance(value, list) else [value]


def _is_view(operator: Any) -> bool:
    """It gives a part of an argument and writes nothing."""
    schema = operator._schema
    returned = [each.alias_info for each in schema.returns]
    return bool(returned) and not schema.is_mutable and all(returned)


# --- as a text ------------------------------------------------------------------------------------------------------

MAX_TEXT = 160
_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def describe(call: OperatorCall, part: RecordedRanks) -> str:
    """The arguments for people: `f32[1024,64], f32[64,64] stride (1,64), 0.5`."""
    positional = [_text(value, part) for value in call.args]
    named = [f"{name}={_text(value, part)}" for name, value in call.kwargs.items()]
    text = ", ".join([*positional, *named])
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4]} ..."


def _text(value: Any, part: RecordedRanks) -> str:
    if isinstance(value, list):
        texts = [_text(each, part) for each in value]
        has_tensors = any(isinstance(each, TensorArgument) for each in value)
        return f"[{', '.join(_counted(texts) if has_tensors else texts)}]"
    if isinstance(value, TensorArgument):
        return tensor_text(part.tensors[value.index])
    if isinstance(value, WordArgument):
        return value.value
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _counted(texts: Iterable[str]) -> list[str]:
    """Equal neighbours once: `3x f32[64]`."""
    counted: list[tuple[str, int]] = []
    for text in texts:
        if counted and counted[-1][0] == text:
            counted[-1] = (text, counted[-1][1] + 1)
        else:
            counted.append((text, 1))
    return [text if count == 1 else f"{count}x {text}" for text, count in counted]


def tensor_text(tensor: RecordedTensor) -> str:
    letters = tensor.dtype.rstrip("0123456789")
    short = _SHORT.get(letters, letters) + tensor.dtype[len(letters) :]
    host = " host" if tensor.place == "host" else ""
    strides = "" if _is_contiguous(tensor) else f" stride ({','.join(map(str, tensor.stride))})"
    return f"{short}[{','.join(map(str, tensor.shape))}]{strides}{host}"


def _is_contiguous(tensor: RecordedTensor) -> bool:
    expected = [math.prod(tensor.shape[dim + 1 :]) for dim in range(len(tensor.shape))]
    return all(
        size == 1 or have == want for size, have, want in zip(tensor.shape, tensor.stride, expected, strict=True)
    )
