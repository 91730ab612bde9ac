"""The bf16 units of a card, on a CPU that has none: torch's own bf16 products there are plain loops that take minutes
at the width of a published model."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

PRODUCTS = {
    torch.ops.aten.linear.default,  # in inference mode; else it comes as mm
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
}


class Bf16Units(TorchDispatchMode):
    """Products of bf16 numbers are added up in fp32 and rounded once, as such units do."""

    def __init__(self) -> None:
        super().__init__()
        self.num_products = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op not in PRODUCTS or args[0].dtype != torch.bfloat16:
            return op(*args, **(kwargs or {}))
        self.num_products += 1
        widened = tree_map_only(torch.Tensor, torch.Tensor.float, args)
        return tree_map_only(torch.Tensor, torch.Tensor.bfloat16, op(*widened, **(kwargs or {})))
