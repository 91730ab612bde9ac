"""torch functions that a device written in Python cannot have: these are played on the host.

`torch.tensor(..., device=...)` and its kin end in an internal assertion of torch's python dispatcher; they build on the
host, then move. For pinned memory torch asks an allocator in C++; here it is a copy that is marked as pinned.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _device

NAMES = ("tensor", "as_tensor", "asarray", "scalar_tensor")


def patch_functions(torch_type: str) -> None:
    _device._device_constructors()  # a cached set of functions: it has to hold the originals
    for name in NAMES:
        setattr(torch, name, _through_host(getattr(torch, name), torch_type))


def _through_host(function: Callable[..., torch.Tensor], torch_type: str) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def built(*args: Any, **kwargs: Any) -> torch.Tensor:
        wanted = kwargs.get("device")
        if isinstance(wanted, int):
            device = torch.device(torch_type, wanted)
        elif wanted is not None:
            device = torch.device(wanted)
        else:  # torch.get_default_device would call torch.tensor
            modes = [each for each in _get_current_function_mode_stack() if isinstance(each, _device.DeviceContext)]
            device = modes[-1].device if modes else torch.device("cpu")
        if device.type != torch_type or (wanted is None and isinstance(args[0], torch.Tensor)):
            return function(*args, **kwargs)
        if isinstance(args[0], torch.Tensor):
            return args[0].to(device, kwargs.get("dtype"))
        needs_gradient = kwargs.pop("requires_grad", False)
        on_host = function(*args, **{**kwargs, "device": "cpu"})
        return on_host.to(device).requires_grad_(needs_gradient)

    return built


def patch_pinning() -> None:
    """Mark copies as pinned, by the address of their storage. So views of pinned memory are pinned too."""
    pinned: set[int] = set()

    def pin_memory(tensor: torch.Tensor, _device: Any = None) -> torch.Tensor:
        if tensor.device.type != "cpu":
            raise RuntimeError(f"cannot pin a tensor of {tensor.device}: only memory of the host can be pinned")
        copy = tensor.clone()
        storage = copy.untyped_storage()
        pinned.add(storage._cdata)
        weakref.finalize(storage, pinned.discard, storage._cdata)
        return copy

    def is_pinned(tensor: torch.Tensor, _device: Any = None) -> bool:
        return tensor.device.type == "cpu" and tensor.untyped_storage()._cdata in pinned

    torch.Tensor.pin_memory = pin_memory
    torch.Tensor.is_pinned = is_pinned
