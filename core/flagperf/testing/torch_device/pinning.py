"""Pinned memory of the host: a copy that is marked as such. torch asks an allocator in C++, which a device written in
Python does not have."""

from __future__ import annotations

import weakref
from typing import Any

import torch

_pinned: set[int] = set()
"""Storages, by the address of their objects."""


def patch_pinning() -> None:
    """Views of pinned memory are pinned."""
    torch.Tensor.pin_memory = _pin_memory
    torch.Tensor.is_pinned = _is_pinned


def _pin_memory(tensor: torch.Tensor, _device: Any = None) -> torch.Tensor:
    if tensor.device.type != "cpu":
        raise RuntimeError(f"cannot pin a tensor of {tensor.device}: only memory of the host can be pinned")
    copy = tensor.clone()
    storage = copy.untyped_storage()
    _pinned.add(storage._cdata)
    weakref.finalize(storage, _pinned.discard, storage._cdata)
    return copy


def _is_pinned(tensor: torch.Tensor, _device: Any = None) -> bool:
    return tensor.device.type == "cpu" and tensor.untyped_storage()._cdata in _pinned
