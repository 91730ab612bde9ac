"""torch functions that cannot create a tensor on a device written in Python: they build on the host, then move.

`torch.tensor(..., device=...)` and its kin end in an internal assertion of torch's python dispatcher.
"""

from __future__ import annotations

import functools
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
        device = _default_device() if wanted is None else _as_device(wanted, torch_type)
        if device.type != torch_type or (wanted is None and isinstance(args[0], torch.Tensor)):
            return function(*args, **kwargs)
        if isinstance(args[0], torch.Tensor):
            return args[0].to(device, kwargs.get("dtype"))
        needs_gradient = kwargs.pop("requires_grad", False)
        on_host = function(*args, **{**kwargs, "device": "cpu"})
        return on_host.to(device).requires_grad_(needs_gradient)

    return built


def _default_device() -> torch.device:
    """Not torch.get_default_device, which calls torch.tensor."""
    modes = [each for each in _get_current_function_mode_stack() if isinstance(each, _device.DeviceContext)]
    return modes[-1].device if modes else torch.device("cpu")


def _as_device(value: Any, torch_type: str) -> torch.device:
    return torch.device(torch_type, value) if isinstance(value, int) else torch.device(value)
