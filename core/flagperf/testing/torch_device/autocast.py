"""Autocast on the device, with the CPU's list of operators: mixed precision then has the CPU's losses.

Which operators the CPU casts is read from torch. What each does is not to be read there, so those that go down to the
low precision and those that go by their widest argument are named here; the others are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_map

LOWER = frozenset(
    [
        "mm",
        "bmm",
        "addmm",
        "addbmm",
        "baddbmm",
        "matmul",
        "linear",
        "linalg_vecdot",
        "_native_multi_head_attention",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "_convolution",
        "mkldnn_rnn_layer",
        "scaled_dot_product_attention",
    ]
)
WIDEST = frozenset(("stack", "cat", "index_copy"))


def register_autocast(torch_type: str) -> list[torch.library.Library]:
    """The libraries have to be kept: their operators go with them."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    for name in _cast_on_cpu():
        operator = _overload(name)
        base = name.removeprefix("aten::").partition(".")[0]
        library.impl(operator, _casting(operator, base, torch_type), "AutocastPrivateUse1")
    return [everything, library]


def _cast_on_cpu() -> Iterable[str]:
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return [name for name in names if name.startswith("aten::") and has_kernel(name, "AutocastCPU")]


def _overload(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _casting(operator: Any, base: str, torch_type: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = _target(base, (args, kwargs), torch_type)

        def cast(value: Any) -> Any:
            is_cast = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
            return value.to(dtype) if is_cast and value.device.type == torch_type else value

        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operator(*tree_map(cast, args), **tree_map(cast, kwargs))

    return call


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def _target(base: str, arguments: Any, torch_type: str) -> torch.dtype:
    lower = torch.get_autocast_dtype(torch_type)
    if base in LOWER:
        return lower
    if base not in WIDEST:
        return torch.float32
    found: set[torch.dtype] = set()
    tree_map(lambda value: found.add(value.dtype) if isinstance(value, torch.Tensor) else None, arguments)
    return torch.float32 if torch.float32 in found else lower
