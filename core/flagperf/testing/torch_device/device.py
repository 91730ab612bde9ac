"""The device itself: runs every operator on the CPU tensors inside, and forgives nothing that a card would not.

torch calls `run` for every operator with a tensor of the device among its arguments (through DeviceTensor) and for
every operator that creates one (through the fallback of the dispatch key). Tensors of the host among the arguments
raise, except where torch allows them on cards: in copies, and as numbers (0 dimensions).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from flagperf.testing.torch_device.collectives import with_device_result, within_host_groups
from flagperf.testing.torch_device.memory import CardMemory, Report
from flagperf.testing.torch_device.options import Options
from flagperf.testing.torch_device.queue import Queue
from flagperf.testing.torch_device.tensor import DeviceTensor

WAITING = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero", "masked_select", "_unique2", "unique_dim",
        "unique_consecutive", "unique_dim_consecutive", "repeat_interleave.Tensor",
    )
)  # fmt: skip
"""Operators whose result the host needs, or whose shape depends on the values."""

PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "bmm", "addmm", "baddbmm"))
_TF32_DROPPED_BITS = 13


class Device:
    """All cards of one torch type, as this process sees them."""

    def __init__(
        self, torch_type: str, card_bytes: Sequence[int], report: Report, options: Options, local_rank: int
    ) -> None:
        self.torch_type = torch_type
        self.options = options
        self.queue = Queue(options, local_rank)
        self.memory = [CardMemory(index, total, report) for index, total in enumerate(card_bytes)]
        self.current = 0

    def tensor(self, held: torch.Tensor, index: int) -> DeviceTensor:
        if held.dtype in (torch.float64, torch.complex128) and not self.options.float64:
            raise TypeError(f"{self.torch_type} doesn't support {held.dtype}")
        self.memory[index].hold(held)
        return DeviceTensor(held, index, self)

    def run(self, operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = operator.name()
        if name.startswith(("c10d::", "_c10d_functional::")):
            args = within_host_groups(args, self.torch_type)
        if name == "aten::copy_":
            return self._copy(*args, **kwargs)
        if name == "aten::_to_copy":
            return self._to_copy(*args, **kwargs)
        flat, shape = tree_flatten((args, kwargs))
        index = self._index(name, flat)
        self.queue.add_operator(name)
        if name in WAITING or (name.startswith("aten::index") and _has_bool_index(args)):
            self.queue.synchronize()
        held_args, held_kwargs = tree_unflatten([self._inside(each) for each in flat], shape)
        if name.removesuffix(".out") in PRODUCTS:
            held_args = [round_to_tf32(each) for each in held_args]
        results, result_shape = tree_flatten(operator(*held_args, **held_kwargs))
        # An operator that gives back one of its arguments (in place, out=) gives back the same wrapper.
        wrappers = {id(each._held): each for each in flat if isinstance(each, DeviceTensor)}
        for place, result in enumerate(results):
            if isinstance(result, torch.Tensor) and result.device.type == "cpu":
                known = wrappers.get(id(result))
                results[place] = self.tensor(result, index) if known is None else known
        results = tree_unflatten(results, result_shape)
        return with_device_result(results) if name == "c10d::allreduce_" else results

    def _inside(self, value: Any) -> Any:
        if isinstance(value, DeviceTensor):
            return value._held
        if isinstance(value, torch.device) and value.type == self.torch_type:
            return torch.device("cpu")
        return value

    def _index(self, name: str, flat: list[Any]) -> int:
        """Return the index of the card that this operator runs on: all its tensors are there."""
        ours = {each.device.index for each in flat if isinstance(each, DeviceTensor)}
        tensors = [each for each in flat if isinstance(each, torch.Tensor)]
        foreign = [each for each in tensors if each.device.type == "cpu" and each.dim() > 0]
        if ours and foreign:
            place = f"{self.torch_type}:{min(ours)} and {foreign[0].device}"
            raise RuntimeError(f"expected all tensors to be on the same device, but found {place} in {name}")
        if len(ours) > 1:
            raise RuntimeError(
                f"expected all tensors on one card, but found {self.torch_type} {sorted(ours)} in {name}"
            )
        asked = [each for each in flat if isinstance(each, torch.device) and each.type == self.torch_type]
        chosen = ours or {self.current if each.index is None else each.index for each in asked} or {self.current}
        return int(min(chosen))

    # --- across the border ------------------------------------------------------------------------------------------

    def _copy(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        there, here = isinstance(target, DeviceTensor), isinstance(source, DeviceTensor)
        if there and not here and non_blocking:
            self.queue.add_copy_to_device(target._held, source)
            return target
        self.queue.add_operator("aten::copy_")
        if here and not there and non_blocking:
            self.queue.add_copy_to_host(target, source._held)
            return target
        if here is not there:
            self.queue.synchronize()
        self._inside(target).copy_(self._inside(source))
        return target

    def _to_copy(self, source: DeviceTensor, *, non_blocking: bool = False, **options: Any) -> torch.Tensor:
        """Copy to another type or device. From the host torch makes an empty tensor here, then calls `copy_`."""
        goes_to = torch.device(options.get("device") or source.device)
        self.queue.add_operator("aten::_to_copy")
        if goes_to.type == self.torch_type:
            index = self.current if goes_to.index is None else goes_to.index
            return self.tensor(torch.ops.aten._to_copy(source._held, **{**options, "device": "cpu"}), index)
        if goes_to.type == "cpu" and not non_blocking:
            self.queue.synchronize()
        target = torch.ops.aten._to_copy(source._held, **options)
        if goes_to.type == "cpu" and non_blocking:
            self.queue.add_copy_to_host(target, target)
        return target


def _has_bool_index(args: Any) -> bool:
    """Return whether a mask chooses elements, whose number only the device knows. Setting one number needs no count."""
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    sets_one_number = len(args) > 2 and isinstance(args[2], torch.Tensor) and args[2].numel() == 1
    is_mask = any(isinstance(each, torch.Tensor) and each.dtype in (torch.bool, torch.uint8) for each in indices)
    return is_mask and not sets_one_number


def round_to_tf32(value: Any) -> Any:
    """Return a factor as cards take it if torch.set_float32_matmul_precision allows TF32: elements of float32 matrices
    are rounded to ten mantissa bits."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or value.dim() < 2:
        return value
    if torch.get_float32_matmul_precision() == "highest":
        return value
    half, kept = 1 << (_TF32_DROPPED_BITS - 1), -1 << _TF32_DROPPED_BITS
    return ((value.contiguous().view(torch.int32) + half) & kept).view(torch.float32)
