"""Attention under the name of one vendor's kernel, called by its common name instead: every card then uses its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch.nn.functional import scaled_dot_product_attention

_PREFIX = "aten::_scaled_dot_product_"


class Attention(msgspec.Struct, frozen=True):
    """Bound to names, which the kernels have in common. Their order they have not."""

    given: dict[str, Any]
    is_backward: bool

    def call(self) -> Callable[[], Any]:
        if not self.is_backward:
            return self._forward
        inputs = [self.given[name].requires_grad_() for name in ("query", "key", "value")]
        with torch.enable_grad():
            output = self._forward()
        gradient = self.given.get("grad_out", self.given.get("grad_out_"))
        return lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    @property
    def has_dropout(self) -> bool:
        return bool(self.given.get("dropout_p"))

    def flops(self) -> int:
        """Two products of queries and keys, half of them where it is causal; backward has five."""
        query, key, value = (self.given[name].shape for name in ("query", "key", "value"))
        products = 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        halved = products // 2 if self.given.get("is_causal") else products
        return int(halved * 5 // 2 if self.is_backward else halved)

    def _forward(self) -> torch.Tensor:
        query, key = self.given["query"], self.given["key"]
        mask = self.given.get("attn_mask", self.given.get("attn_bias"))
        more = {"enable_gqa": True} if query.shape[-3] != key.shape[-3] else {}
        return scaled_dot_product_attention(
            query,
            key,
            self.given["value"],
            attn_mask=mask,
            dropout_p=self.given.get("dropout_p", 0.0),
            is_causal=self.given.get("is_causal", False),
            scale=self.given.get("scale"),
            **more,
        )


def as_attention(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> Attention | None:
    """None for other operators."""
    name = operator._schema.name
    if not name.startswith(_PREFIX):
        return None
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return Attention(given, is_backward=name.endswith("_backward"))
