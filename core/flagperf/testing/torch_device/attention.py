"""The device's own fused attention: the kernel that the CPU would choose, where torch would take its plain formula."""

from __future__ import annotations

from typing import Any

import torch

_FLASH = 1
"""torch.nn.attention.SDPBackend.FLASH_ATTENTION, as the operator numbers it."""


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
        mask = _added(attn_mask, query.dtype)
        return flash(query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale)[0]
    plain = torch.ops.aten._scaled_dot_product_attention_math
    return plain(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]


def _added(mask: Any, dtype: torch.dtype) -> Any:
    """A mask of booleans as one that is added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))
