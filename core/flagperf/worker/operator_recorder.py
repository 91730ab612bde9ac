"""OperatorRecorder: writes down every operator call of a few steps, below autograd, so that the operators of the
backward pass and of the optimizer are seen as well. Used after the measured span only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from flagperf.api import Argument, OperatorCall, RecordedTensor, TensorArgument, ValueRange, WordArgument
from flagperf.api.operator_calls import RECORDING_SCHEMA, RankOperators
from flagperf.messages import Message

COLLECTIVES = ("c10d::", "_c10d_functional", "symm_mem::")
"""Beginnings of their names. What they do depends on the other ranks."""

_WORDS: tuple[tuple[type, Any], ...] = (
    (torch.dtype, "dtype"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
)


class OperatorRecorder(TorchDispatchMode):  # type: ignore[misc]
    """A context manager around each step that is recorded."""

    supports_higher_order_operators = True

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self._device_type = device_type
        self._tensors: dict[RecordedTensor, int] = {}
        self._calls: dict[Any, _Entry] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Tensors that are made of others, such as DTensor, become operators on the tensors of this rank, seen here.
        if any(hasattr(each, "__tensor_flatten__") and hasattr(each, "__tensor_unflatten__") for each in types):
            return NotImplemented
        # What a profiler is given are labels for people, which may say anything.
        if not str(func).startswith("profiler.") and not _computes_nothing(args, kwargs):
            self._note(func, args, kwargs)
        return func(*args, **kwargs)

    def operators(self, rank: int, steps: int, planned_steps: int, problem: Message | None) -> RankOperators:
        return RankOperators(
            schema=RECORDING_SCHEMA,
            rank=rank,
            torch=str(torch.__version__),
            steps=steps,
            planned_steps=planned_steps,
            tensors=list(self._tensors),
            calls=[entry.call() for entry in self._calls.values()],
            problem=problem,
        )

    def _note(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        name = func.name() if hasattr(func, "_schema") else str(func)
        tensors = list(_tensors([*args, *kwargs.values()]))
        try:
            if name.startswith(COLLECTIVES):
                call = OperatorCall(name, 0, [self._tensor(tensor) for tensor in tensors], obstacle="collective")
            else:
                given = [self._argument(each) for each in args]
                call = OperatorCall(name, 0, given, {key: self._argument(each) for key, each in kwargs.items()})
        except _CannotWrite as error:
            call = OperatorCall(name, 0, obstacle=str(error))
        # Fractions such as a learning rate change from step to step and no operator takes another time for them, so
        # they do not tell calls apart; halves do, because of powers and roots.
        named = tuple((key, _key_of(value)) for key, value in call.kwargs.items())
        key = (call.operator, tuple(map(_key_of, call.args)), named, call.obstacle)
        entry = self._calls.setdefault(key, _Entry(call))
        entry.count += 1
        if not call.obstacle:
            for place, tensor in enumerate(tensors):
                entry.add_values(place, tensor)

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
            return [self._scalar(each) for each in value]
        return list(value) if isinstance(value, torch.Size) else self._scalar(value)

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device):
            return WordArgument("place", self._place(value))
        if isinstance(value, torch.Generator):
            return None  # the default one draws as fast
        if isinstance(value, float) and not math.isfinite(value):
            return WordArgument("float", str(value))
        for kind, word in _WORDS:
            if isinstance(value, kind):
                return WordArgument(word, str(value).removeprefix("torch."))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise _CannotWrite(f"an argument of type {type(value).__name__}")

    def _tensor(self, value: torch.Tensor) -> TensorArgument:
        if value.layout is not torch.strided or value.is_quantized or value.is_nested:
            raise _CannotWrite(f"a tensor of layout {str(value.layout).removeprefix('torch.')}")
        dtype = str(value.dtype).removeprefix("torch.")
        tensor = RecordedTensor(tuple(value.shape), tuple(value.stride()), dtype, self._place(value.device))
        return TensorArgument(self._tensors.setdefault(tensor, len(self._tensors)))

    def _place(self, device: torch.device) -> Any:
        return "device" if device.type == self._device_type else "host"


class _CannotWrite(Exception):
    pass


class _Entry:
    """Equal calls."""

    def __init__(self, first: OperatorCall) -> None:
        self._first = first
        self.count = 0
        self._ranges: dict[str, ValueRange] = {}

    def add_values(self, place: int, tensor: torch.Tensor) -> None:
        if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
            return
        values = tensor.detach().to("cpu").to(torch.int64)
        low, high = (int(bound) for bound in torch.aminmax(values))
        if tensor.dtype is torch.bool:
            found = ValueRange(low, high, share=float(values.sum()) / values.numel())
        else:
            is_sorted = values.dim() == 1 and bool((values[1:] >= values[:-1]).all())
            found = ValueRange(low, high, is_sorted)
        self._ranges[str(place)] = found.union(self._ranges.get(str(place)))

    def call(self) -> OperatorCall:
        return msgspec.structs.replace(self._first, count=self.count, ranges=self._ranges)


def _computes_nothing(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return True for calls by which libraries ask for shapes, as DTensor does of the whole tensors."""
    if any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack()):
        return True
    devices = [each.device for each in _tensors([*args, *kwargs.values()])]
    return any(isinstance(each, torch.device) and each.type == "meta" for each in [*devices, kwargs.get("device")])


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _key_of(value: Argument) -> Any:
    if isinstance(value, list):
        return tuple(map(_key_of, value))
    if isinstance(value, float):
        return "float", value if (2 * value).is_integer() else None
    return type(value).__name__, value
