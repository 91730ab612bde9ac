"""A tensor of the device: a wrapper of another device type around a CPU tensor that holds its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from flagperf.testing.torch_device.device import Device


class DeviceTensor(torch.Tensor):  # type: ignore[misc]
    _held: torch.Tensor
    _home: Device

    @staticmethod
    def __new__(cls, held: torch.Tensor, index: int, home: Device) -> DeviceTensor:
        wrapper: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=torch.device(home.torch_type, index),
        )
        wrapper._held, wrapper._home = held, home
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        home = next(each._home for each in _tensors((args, kwargs or {})))
        return home.run(operator, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        return torch._C.TensorBase.data.__get__(self)

    @data.setter
    def data(self, value: DeviceTensor) -> None:
        torch._C.TensorBase.data.__set__(self, value)  # shape and type; the values are ours
        self._held = value._held

    def untyped_storage(self) -> Any:
        return DeviceStorage(self)

    def data_ptr(self) -> int:
        return int(self._held.data_ptr())

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copy = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy)
        return memo.setdefault(id(self), copy.requires_grad_(self.requires_grad))

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"cannot convert a tensor on {self.device} to numpy: copy it to the host first")
        return self.cpu().numpy(force=True)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(self._on_card(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(self._on_card(index), value)

    def _on_card(self, index: Any) -> Any:
        """Turn lists into tensors of the card, which torch cannot do here, see functions.py."""
        if isinstance(index, tuple):
            return tuple(self._on_card(each) for each in index)
        return torch.tensor(index, device=self.device) if isinstance(index, list) else index

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"{self._held!r} on {self.device}"


class DeviceStorage:
    """The storage of a tensor on the device, as far as libraries ask for it."""

    def __init__(self, tensor: DeviceTensor) -> None:
        self._tensor = tensor
        self._held = tensor._held.untyped_storage()
        self.device = tensor.device

    def size(self) -> int:
        return int(self._held.nbytes())

    nbytes = __len__ = size

    def data_ptr(self) -> int:
        return int(self._held.data_ptr())

    def resize_(self, num_bytes: int) -> None:
        self._tensor._home.memory[self._tensor.device.index].resize(self._held, num_bytes)


def _tensors(value: Any) -> Any:
    if isinstance(value, DeviceTensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
