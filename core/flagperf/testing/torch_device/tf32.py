"""TF32 as cards compute it: products of float32 matrices whose elements are first rounded to ten mantissa bits."""

from __future__ import annotations

from typing import Any

import torch

PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "bmm", "addmm", "baddbmm"))
_DROPPED_BITS = 13


def round_to_tf32(value: Any) -> Any:
    """Unchanged unless torch.set_float32_matmul_precision allows TF32 and the value is a float32 matrix."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or value.dim() < 2:
        return value
    if torch.get_float32_matmul_precision() == "highest":
        return value
    half, kept = 1 << (_DROPPED_BITS - 1), -1 << _DROPPED_BITS
    return ((value.contiguous().view(torch.int32) + half) & kept).view(torch.float32)
