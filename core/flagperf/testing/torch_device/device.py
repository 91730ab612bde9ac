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
from flagperf.testing.torch_device.tf32 import PRODUCTS, round_to_tf32

WAITING = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense", "equal", "is_nonzero", "item", "nonzero", "masked_select", "_unique2", "unique_dim",
        "unique_consecutive", "unique_dim_consecutive", "repeat_interleave.Tensor",
    )
)  # fmt: skip
"""Operators whose result the host needs, or whose shape depends on the values."""


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
        results = self._computed(operator, name, flat, shape, index)
        return with_device_result(results) if name == "c10d::allreduce_" else results

    def _computed(self, operator: Any, name: str, flat: list[Any], shape: Any, index: int) -> Any:
        wrappers = {id(each._held): each for each in flat if isinstance(each, DeviceTensor)}
        held = [self._inside(each) for each in flat]
        args, kwargs = tree_unflatten(held, shape)
        if name.removesuffix(".out") in PRODUCTS:
            args = [round_to_tf32(each) for each in args]
        results, result_shape = tree_flatten(operator(*args, **kwargs))
        return tree_unflatten([self._outside(each, index, wrappers) for each in results], result_shape)

    def _inside(self, value: Any) -> Any:
        if isinstance(value, DeviceTensor):
            return value._held
        if isinstance(value, torch.device) and value.type == self.torch_type:
            return torch.device("cpu")
        return value

    def _outside(self, value: Any, index: int, wrappers: dict[int, DeviceTensor]) -> Any:
        """An operator that gives back one of its arguments (in place, out=) gives back the same wrapper."""
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return value
        known = wrappers.get(id(value))
        return self.tensor(value, index) if known is None else known

    def _index(self, name: str, flat: list[Any]) -> int:
        """Of the card that this operator runs on: all its tensors are there."""
        ours = {each.device.index for each in flat if isinstance(each, DeviceTensor)}
        foreign = [each for each in flat if _is_host_tensor(each)]
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
        """Of another type, or to another device. From the host it is an empty tensor here, then `copy_`."""
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


def _is_host_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0


def _has_bool_index(args: Any) -> bool:
    """How many elements a mask chooses is known to the device alone. Where one number is set there, none is counted."""
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    sets_one_number = len(args) > 2 and isinstance(args[2], torch.Tensor) and args[2].numel() == 1
    is_mask = any(isinstance(each, torch.Tensor) and each.dtype in (torch.bool, torch.uint8) for each in indices)
    return is_mask and not sets_one_number
