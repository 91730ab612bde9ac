"""What the framework's allocator keeps of a device's memory."""

from __future__ import annotations

import gc


def free_memory(torch_device: str) -> None:
    """Give back what no tensor uses any more."""
    gc.collect()
    _ask_module(torch_device, "empty_cache")


def forget_memory(torch_device: str) -> None:
    """What was used so far is no part of the allocator's peaks."""
    for name in ("empty_cache", "reset_peak_memory_stats"):
        _ask_module(torch_device, name)


def _ask_module(torch_device: str, name: str) -> None:
    """A device's module need not have it, and the CPU's has none."""
    import torch

    module = getattr(torch, torch_device.partition(":")[0], None)
    if hasattr(module, name):
        getattr(module, name)()
