"""Kernels that torch calls before the device itself: its own fused attention, and autocast.

Both give the CPU's results. Attention takes the kernel that the CPU would choose, where torch would take its plain
formula. Autocast has the CPU's list of operators, read from torch, so mixed precision has the CPU's losses. torch does
not tell what it does to each, so those that go down to the low precision and those that go by their widest argument are
named here; the others are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

LOWER = frozenset(
    (
        "mm", "bmm", "addmm", "addbmm", "baddbmm", "matmul", "linear", "linalg_vecdot", "_native_multi_head_attention",
        "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "_convolution", "mkldnn_rnn_layer", "scaled_dot_product_attention",
    )
)  # fmt: skip
WIDEST = frozenset(("stack", "cat", "index_copy"))
_FLASH = 1
"""torch.nn.attention.SDPBackend.FLASH_ATTENTION, as the operator numbers it."""
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def register_attention() -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL")
    library.impl("scaled_dot_product_attention", _attention, "AutogradPrivateUse1")
    return library


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    held = [None if each is None else each._held for each in (query, key, value, attn_mask)]
    choice = torch._fused_sdp_choice(*held, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if choice == _FLASH:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        mask = attn_mask
        if mask is not None and mask.dtype == torch.bool:  # the kernel adds its mask to the scores
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
        return flash(query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale)[0]
    plain = torch.ops.aten._scaled_dot_product_attention_math
    return plain(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]


def register_autocast(torch_type: str) -> list[torch.library.Library]:
    """Register the operators. They go with the libraries returned, which have to be kept."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    library = torch.library.Library("aten", "IMPL")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and has_kernel(name, "AutocastCPU"):
            base, _, overload = name.removeprefix("aten::").partition(".")
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            library.impl(operator, _casting(operator, base, torch_type), "AutocastPrivateUse1")
    return [everything, library]


def _casting(operator: Any, base: str, torch_type: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(torch_type) if base in LOWER else torch.float32
        if base in WIDEST:
            found: set[torch.dtype] = set()
            tree_map(lambda value: found.add(value.dtype) if isinstance(value, torch.Tensor) else None, (args, kwargs))
            dtype = torch.float32 if torch.float32 in found else torch.get_autocast_dtype(torch_type)

        def cast(value: Any) -> Any:
            is_cast = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
            return value.to(dtype) if is_cast and value.device.type == torch_type else value

        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operator(*tree_map(cast, args), **tree_map(cast, kwargs))

    return call
